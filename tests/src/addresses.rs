//! Ports and loopback addresses that nobody else uses.

use std::collections::HashSet;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::Mutex;

use anyhow::{Context as _, Result};

use crate::run::random;

/// Below the range from which Linux takes the ports of outgoing connections: one of those could otherwise
/// take a port between our look and the server's bind.
const PORTS: std::ops::Range<u16> = 12_000..32_000;

/// Ports given out by this process, whose servers may not be listening yet.
static TAKEN: Mutex<Option<HashSet<u16>>> = Mutex::new(None);

/// A port on 127.0.0.1 that is free now and given to nobody else in this process.
pub fn free_port() -> Result<u16> {
    let mut taken = TAKEN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let taken = taken.get_or_insert_default();
    candidates(u64::from(PORTS.end - PORTS.start))
        .map(|offset| PORTS.start + offset)
        .find(|port| !taken.contains(port) && TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok())
        .inspect(|port| {
            taken.insert(*port);
        })
        .context("no free port on 127.0.0.1")
}

/// Loopback addresses of one workload cluster's machines, which are numbered from 1.
#[derive(Debug, Clone, Copy)]
pub struct MachineAddresses {
    second: u8,
    third: u8,
}

impl MachineAddresses {
    /// How many machines a cluster can have: five and one of surge, with some still going away.
    pub const COUNT: u8 = 8;

    /// Finds a block in which nothing listens on `port`.
    pub fn find(port: u16) -> Result<Self> {
        candidates(u64::from(u16::MAX))
            .map(|block| {
                let [second, third] = block.to_be_bytes();
                Self { second, third }
            })
            // 127.0.x.y is what people use by hand.
            .filter(|block| block.second != 0)
            .find(|block| {
                block
                    .all()
                    .all(|address| TcpListener::bind((address, port)).is_ok())
            })
            .context("no free block of loopback addresses")
    }

    /// The address of one machine.
    pub fn machine(self, number: u8) -> Ipv4Addr {
        Ipv4Addr::new(127, self.second, self.third, number)
    }

    /// The addresses of all machines that there may ever be.
    fn all(self) -> impl Iterator<Item = Ipv4Addr> {
        (1..=Self::COUNT).map(move |number| self.machine(number))
    }
}

/// Some numbers below `end`, in an order that differs from run to run.
fn candidates(end: u64) -> impl Iterator<Item = u16> {
    (0..1000).filter_map(move |_| u16::try_from(random() % end).ok())
}
