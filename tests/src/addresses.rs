//! Free ports and loopback addresses.

use std::collections::HashSet;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::Mutex;

use anyhow::{Context as _, Result};

use crate::run::random;

/// Below the range from which Linux takes the ports of outgoing connections: such a connection could otherwise take a
/// port between our check and the server's bind.
const PORTS: std::ops::Range<u16> = 12_000..32_000;

/// Ports that this process has assigned. Their servers may not listen yet.
static TAKEN: Mutex<Option<HashSet<u16>>> = Mutex::new(None);

/// Returns a port on 127.0.0.1 that is free now and that this process has not assigned before.
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

/// Loopback addresses of the machines of one workload cluster. Machines are numbered from 1.
#[derive(Debug, Clone, Copy)]
pub struct MachineAddresses {
    second: u8,
    third: u8,
}

impl MachineAddresses {
    /// The most machines that a cluster can have: five, one of surge, and some that are being deleted.
    pub const COUNT: u8 = 8;

    /// Finds a block of addresses where nothing listens on `port`.
    pub fn find(port: u16) -> Result<Self> {
        candidates(u64::from(u16::MAX))
            .map(|block| {
                let [second, third] = block.to_be_bytes();
                Self { second, third }
            })
            // People use 127.0.x.y by hand.
            .filter(|block| block.second != 0)
            .find(|block| {
                block
                    .all()
                    .all(|address| TcpListener::bind((address, port)).is_ok())
            })
            .context("no free block of loopback addresses")
    }

    pub fn machine(self, number: u8) -> Ipv4Addr {
        Ipv4Addr::new(127, self.second, self.third, number)
    }

    fn all(self) -> impl Iterator<Item = Ipv4Addr> {
        (1..=Self::COUNT).map(move |number| self.machine(number))
    }
}

/// Returns random numbers below `end`.
fn candidates(end: u64) -> impl Iterator<Item = u16> {
    (0..1000).filter_map(move |_| u16::try_from(random() % end).ok())
}
