//! The names by which people select faults.

use std::fmt::{self, Write as _};
use std::str::FromStr;

use anyhow::{Error, Result};

use crate::machines::fault::Fault;
use crate::workload_access::AccessFault;

/// A fault, its name and its effect.
type Row<F> = (F, &'static str, &'static str);

/// Prints and parses a fault as its name in `ALL`.
macro_rules! named {
    ($fault:ty) => {
        impl std::fmt::Display for $fault {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let row = Self::ALL.iter().find(|(known, ..)| known == self);
                f.write_str(row.map_or("", |(_, name, _)| name))
            }
        }

        impl std::str::FromStr for $fault {
            type Err = anyhow::Error;

            fn from_str(name: &str) -> anyhow::Result<Self> {
                let row = Self::ALL.into_iter().find(|(_, known, _)| *known == name);
                row.map(|(fault, ..)| fault)
                    .ok_or_else(|| anyhow::anyhow!("no fault is named {name}"))
            }
        }
    };
}
pub(crate) use named;

fn effect<F: Copy + PartialEq>(faults: &[Row<F>], fault: F) -> &'static str {
    let row = faults.iter().find(|(known, _, _)| *known == fault);
    row.map_or("", |(_, _, effect)| effect)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamedFault {
    /// A fault of a machine.
    Machine(Fault),
    /// A fault of the access to a workload cluster.
    Access(AccessFault),
}

impl NamedFault {
    /// The effect of the fault.
    pub fn effect(self) -> &'static str {
        match self {
            Self::Machine(fault) => effect(&Fault::ALL, fault),
            Self::Access(fault) => effect(&AccessFault::ALL, fault),
        }
    }

    /// All faults, one per line.
    pub fn list() -> String {
        let mut list = String::from("of a Machine:\n");
        for (_, name, effect) in Fault::ALL {
            // Writing to a String cannot fail.
            let _ = writeln!(list, "  {name:<20}{effect}");
        }
        list.push_str("of a Cluster, one at a time:\n");
        for (_, name, effect) in AccessFault::ALL {
            let _ = writeln!(list, "  {name:<20}{effect}");
        }
        list
    }
}

impl fmt::Display for NamedFault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Machine(fault) => fault.fmt(formatter),
            Self::Access(fault) => fault.fmt(formatter),
        }
    }
}

impl FromStr for NamedFault {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        let of_a_machine = name.parse().map(Self::Machine);
        of_a_machine.or_else(|_| name.parse().map(Self::Access))
    }
}

#[cfg(test)]
mod tests {
    use super::NamedFault;

    #[test]
    fn every_fault_is_in_the_readme() {
        let readme = include_str!("../README.md");
        for line in NamedFault::list().lines().filter(|line| line.starts_with(' ')) {
            let name = line.split_whitespace().next().unwrap();
            assert!(readme.contains(&format!("`{name}`")), "{name}");
        }
    }

    #[test]
    fn every_fault_that_is_listed_is_known_by_its_name() {
        let list = NamedFault::list();
        let mut names: Vec<_> = list
            .lines()
            .filter(|line| line.starts_with(' '))
            .filter_map(|line| line.split_whitespace().next())
            .collect();
        for name in &names {
            let fault: NamedFault = name.parse().unwrap();
            assert_eq!(fault.to_string(), **name);
            assert!(list.contains(fault.effect()), "{name}");
        }
        assert_eq!(names.len(), 33);
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), 33);
        let unknown = "kil".parse::<NamedFault>().unwrap_err();
        assert_eq!(unknown.to_string(), "no fault is named kil");
    }
}
