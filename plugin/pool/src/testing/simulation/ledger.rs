//! What processes were told, and what must be true of the entries after each step.

use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};

use jiff::Timestamp;
use kcp_api::metadata::Object as _;

use super::{
    World,
    network::{Client, is_contradictory},
};
use crate::{
    lease::reuse::Reuse,
    objects::{
        entry::{Entry, Reservation},
        record::{CLOCK_MARGIN, LeaseRecord, LeaseState},
    },
    store::LeaseStore as _,
};

/// A lease that a process believes to have.
pub(super) struct Told {
    pub(super) client: Rc<Client>,
    pub(super) holder: String,
    pub(super) entry: String,
    pub(super) id: String,
    /// Until when the process believes this by its own clock.
    pub(super) ends: Timestamp,
    /// Whether the process renews the lease until it says otherwise.
    pub(super) is_renewed: bool,
    /// When the attempt that leased the entry began.
    pub(super) begun: u64,
}

impl Told {
    fn counts(&self) -> bool {
        self.is_renewed || self.client.now().latest < self.ends
    }
}

/// An entry that a janitor believes to clean.
pub(super) struct Cleans {
    pub(super) process: usize,
    pub(super) entry: String,
    pub(super) id: String,
}

#[derive(Default)]
pub(super) struct Ledger {
    pub(super) told: Vec<Told>,
    pub(super) cleans: Vec<Cleans>,
    /// The ids of all leases that a process was told of.
    ids: BTreeSet<String>,
    /// Those of them that were required to be new.
    new: BTreeSet<String>,
    /// The ids of the leases that a process has ended, and when this was decided.
    ended: BTreeMap<String, u64>,
    /// The ids of the leases that their processes have released.
    released: BTreeSet<String>,
    /// The janitors whose command has succeeded.
    cleaned: BTreeSet<String>,
    /// The entries that a process has used since they were cleaned, with its holder.
    dirty: BTreeMap<String, String>,
    /// How many entries a holder may have at most.
    pub(super) wanted: BTreeMap<String, usize>,
    seen: u64,
    reservations: BTreeMap<String, Reservation>,
    problem: Option<String>,
}

impl Ledger {
    pub(super) fn leases(&self) -> usize {
        self.ids.len()
    }

    /// A process is told of a lease. If it required a new one, no other process has required and got this one.
    pub(super) fn tell(&mut self, told: Told, must_be_new: bool) {
        self.ids.insert(told.id.clone());
        if must_be_new && !self.new.insert(told.id.clone()) {
            self.problem = Some(format!(
                "two processes of {} have a new lease: {}",
                told.holder, told.id
            ));
        }
        let is_over = self.ended.get(&told.id).is_some_and(|ended| told.begun <= *ended);
        if !is_over && told.client.now().latest < told.ends {
            self.dirty.insert(told.entry.clone(), told.holder.clone());
            self.told.push(told);
        }
    }

    /// A process of this holder, which no longer runs, has used the entry.
    pub(super) fn used(&mut self, entry: &str, holder: &str) {
        self.dirty.insert(entry.to_owned(), holder.to_owned());
    }

    /// The process no longer believes that it has a lease.
    pub(super) fn untell(&mut self, process: usize) {
        self.told.retain(|told| told.client.number != process);
    }

    pub(super) fn released(&mut self, id: &str) {
        self.released.insert(id.to_owned());
    }

    pub(super) fn cleans(&mut self, cleans: Cleans) {
        self.cleans.push(cleans);
    }

    pub(super) fn stops_cleaning(&mut self, id: &str, has_succeeded: bool) {
        self.cleans.retain(|cleans| cleans.id != id);
        if has_succeeded {
            self.cleaned.insert(id.to_owned());
        }
    }

    pub(super) fn stops_cleaning_by(&mut self, process: usize) {
        self.cleans.retain(|cleans| cleans.process != process);
    }

    pub(super) fn fail(&mut self, why: String) {
        self.problem.get_or_insert(why);
    }

    /// The server has stored a write of an entry. `is_based` if the process had read what it replaces.
    pub(super) fn written(&mut self, client: &Client, entry: &str, is_based: bool) {
        if !is_based {
            self.fail(format!(
                "{} overwrites {entry}, whose version it has not read",
                client.number
            ));
        }
        // The decision to release a lease also ends it for other processes under the same name that had begun to lease it then.
        if client.releases.get()
            && let Some(Reservation::Leased(before)) = self.reservations.get(entry)
        {
            let (id, listed) = (before.id.clone(), client.listed.get());
            self.told.retain(|told| told.id != id || told.begun > listed);
            self.ended.insert(id, listed);
        }
    }

    pub(super) fn check(&mut self, world: &World) -> Result<(), String> {
        if let Some(problem) = self.problem.take() {
            return Err(problem);
        }
        let version = world.server.version();
        if self.seen != version {
            self.seen = version;
            for entry in world.entries() {
                self.change(world, &entry)?;
            }
            self.check_counts(world)?;
        }
        self.check_beliefs()
    }

    /// Compares an entry with its last version.
    fn change(&mut self, world: &World, entry: &Entry) -> Result<(), String> {
        let (name, now) = (entry.name(), entry.status.reservation());
        let before = self.reservations.get(name);
        if before == Some(&now) {
            return Ok(());
        }
        world.note(|| format!("        {name} is {now:?}"));
        if is_contradictory(entry) {
            return Err(format!("{name} is leased and cleaned at once"));
        }
        if let Reservation::Unreadable(why) = &now {
            return Err(format!("{name} has a record that cannot be read: {why:?}"));
        }
        if let Reservation::Leased(record) = &now {
            self.check_lease(name, record, before)?;
            if world.reuse == Reuse::Clean {
                self.check_clean(name, &record.holder)?;
            }
        }
        if let (Some(Reservation::Cleaning(before)), Reservation::Free) = (before, &now) {
            let janitor = before.janitor.as_ref();
            if !janitor.is_some_and(|janitor| self.cleaned.contains(&janitor.id)) {
                return Err(format!("{name} is free, but nobody has cleaned it"));
            }
            self.dirty.remove(name);
        }
        self.reservations.insert(name.to_owned(), now);
        Ok(())
    }

    fn check_lease(
        &self,
        name: &str,
        record: &LeaseRecord,
        before: Option<&Reservation>,
    ) -> Result<(), String> {
        if self.released.contains(&record.id) {
            return Err(format!(
                "{name} has lease {} again, which was released",
                record.id
            ));
        }
        match before {
            Some(Reservation::Leased(before))
                if before.id == record.id && record.renewals < before.renewals =>
            {
                return Err(format!("{name}: a renewal of {} is lost", record.id));
            }
            // A repair gives the entry back to a cluster that was created, under the same name, while its lease was released.
            Some(Reservation::Cleaning(_)) if !matches!(record.state, LeaseState::InUse { .. }) => {
                return Err(format!("{name} is leased while it is cleaned"));
            }
            _ => {}
        }
        Ok(())
    }

    fn check_counts(&self, world: &World) -> Result<(), String> {
        let now = world.latest_server_time();
        for (holder, wanted) in &self.wanted {
            // A lease that has ended may wait for a janitor.
            let is_its = |found: &&Reservation| {
                matches!(found, Reservation::Leased(record)
                    if record.holder == *holder && record.deadline.is_none_or(|end| end + CLOCK_MARGIN > now))
            };
            let held = self.reservations.values().filter(is_its).count();
            if held > *wanted {
                return Err(format!("{holder} wants {wanted} entries and has {held}"));
            }
        }
        Ok(())
    }

    fn check_beliefs(&self) -> Result<(), String> {
        for told in self.told.iter().filter(|told| told.counts()) {
            let found = self.reservations.get(&told.entry);
            let is_holder = matches!(found, Some(Reservation::Leased(record))
                if record.id == told.id && record.holder == told.holder);
            if !is_holder {
                return Err(format!(
                    "process {} of {} believes that it has {} ({}), but this is {found:?}",
                    told.client.number, told.holder, told.entry, told.id
                ));
            }
        }
        for cleans in &self.cleans {
            let found = self.reservations.get(&cleans.entry);
            let is_janitor = matches!(found, Some(Reservation::Cleaning(record))
                if record.janitor.as_ref().is_some_and(|janitor| janitor.id == cleans.id));
            if !is_janitor {
                return Err(format!(
                    "janitor {} believes that it cleans {}, but this is {found:?}",
                    cleans.id, cleans.entry
                ));
            }
        }
        Ok(())
    }

    /// In a pool that asks for cleaning, another holder gets an entry only after it was cleaned.
    fn check_clean(&self, entry: &str, holder: &str) -> Result<(), String> {
        match self.dirty.get(entry) {
            Some(last) if last != holder => {
                Err(format!("{entry} was not cleaned between {last} and {holder}"))
            }
            _ => Ok(()),
        }
    }
}
