//! The condition of `etcd defrag --when`: which databases are worth a pause of their members.

use std::{cmp::Ordering, fmt, str::FromStr};

use kcp_etcd::Status;

/// The forms that a condition may have, for the error message.
const ACCEPTED: &str = "expected comparisons joined with && and ||, such as 'inUse < 50 && size > 1Gi': inUse is the percentage \
    of the database that is in use, from 0 to 100; size is the size of the database, as a quantity such as 800Mi or 1.5Gi; \
    the operators are <, <=, > and >=";

/// The maximum length of a condition, in bytes.
const MAX_LENGTH: usize = 500;

/// The number of thousandths in one. A quantity is read in thousandths, because it has at most three decimal places.
const THOUSANDTHS: u64 = 1_000;

/// The suffixes of a quantity that make sense for bytes (`k8s.io/apimachinery`, `pkg/api/resource`), and what they multiply by.
const SUFFIXES: [(&str, u64); 9] = [
    ("", 1),
    ("k", 1_000),
    ("M", 1_000_000),
    ("G", 1_000_000_000),
    ("T", 1_000_000_000_000),
    ("Ki", 1 << 10),
    ("Mi", 1 << 20),
    ("Gi", 1 << 30),
    ("Ti", 1 << 40),
];

/// Comparisons of the numbers of a database. `&&` binds tighter than `||`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DefragCondition {
    text: String,
    /// At least one of these lists must hold. A list holds if all its comparisons hold.
    alternatives: Vec<Vec<DatabaseComparison>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct DatabaseComparison {
    property: DatabaseProperty,
    /// How the property must compare with `limit`.
    accepted: &'static [Ordering],
    /// Percent or bytes.
    limit: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DatabaseProperty {
    /// The percentage of the database that is in use.
    InUse,
    /// The size of the database in bytes.
    Size,
}

impl DefragCondition {
    /// Whether the condition holds for a member's database. `None` if the member does not report the size of its database.
    pub fn holds(&self, status: &Status) -> Option<bool> {
        if status.db_size == 0 {
            return None;
        }
        let holds = |comparison: &DatabaseComparison| comparison.holds(status);
        Some(self.alternatives.iter().any(|all| all.iter().all(holds)))
    }
}

impl DatabaseComparison {
    fn holds(&self, status: &Status) -> bool {
        let (size, in_use) = (u128::from(status.db_size), u128::from(status.db_size_in_use));
        let limit = u128::from(self.limit);
        let ordering = match self.property {
            // Compares without a division, which would round 49.9 % down to 49 %.
            DatabaseProperty::InUse => (in_use * 100).cmp(&(limit * size)),
            DatabaseProperty::Size => size.cmp(&limit),
        };
        self.accepted.contains(&ordering)
    }

    fn parse(text: &str) -> Option<Self> {
        let is_operator = |c: char| matches!(c, '<' | '>' | '=');
        let (name, rest) = text.split_at(text.find(is_operator)?);
        let (operator, value) = rest.split_at(rest.find(|c| !is_operator(c))?);
        let accepted: &[Ordering] = match operator {
            "<" => &[Ordering::Less],
            "<=" => &[Ordering::Less, Ordering::Equal],
            ">" => &[Ordering::Greater],
            ">=" => &[Ordering::Greater, Ordering::Equal],
            _ => return None,
        };
        let value = value.trim();
        let (property, limit) = match name.trim() {
            "inUse" => (DatabaseProperty::InUse, parse_percentage(value)?),
            "size" => (DatabaseProperty::Size, parse_quantity(value)?),
            _ => return None,
        };
        Some(Self {
            property,
            accepted,
            limit,
        })
    }
}

impl FromStr for DefragCondition {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.len() > MAX_LENGTH {
            return Err(format!("at most {MAX_LENGTH} bytes are accepted; {ACCEPTED}"));
        }
        let comparison = |part: &str| {
            let parsed = DatabaseComparison::parse(part);
            parsed.ok_or_else(|| format!("cannot read '{}'; {ACCEPTED}", part.trim()))
        };
        let all = |part: &str| part.split("&&").map(comparison).collect();
        let alternatives = text.split("||").map(all).collect::<Result<_, _>>()?;
        Ok(Self {
            text: text.trim().to_owned(),
            alternatives,
        })
    }
}

impl fmt::Display for DefragCondition {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

fn parse_percentage(text: &str) -> Option<u64> {
    let digits = parse_digits(text.strip_suffix('%').unwrap_or(text))?;
    (digits <= 100).then_some(digits)
}

/// A quantity of bytes, such as `1073741824`, `1Gi` or `1.5Gi`.
fn parse_quantity(text: &str) -> Option<u64> {
    let end = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let (_, unit) = SUFFIXES.iter().find(|(known, _)| *known == suffix)?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    if fraction.is_empty() || fraction.len() > 3 {
        return None;
    }
    let thousandths = parse_digits(&format!("{fraction:0<3}"))?;
    let thousandths = parse_digits(whole)?
        .checked_mul(THOUSANDTHS)?
        .checked_add(thousandths)?;
    let bytes = u128::from(thousandths) * u128::from(*unit) / u128::from(THOUSANDTHS);
    u64::try_from(bytes).ok()
}

/// `u64::from_str` would also accept a sign.
fn parse_digits(text: &str) -> Option<u64> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::{ACCEPTED, DefragCondition};
    use crate::testing::snapshot::observed;

    const MEBIBYTE: u64 = 1 << 20;

    #[test]
    fn a_database_is_compared_with_the_condition() {
        // The condition, the size and the part in use in MiB, and whether the condition holds.
        let cases: &[(&str, u64, u64, bool)] = &[
            ("inUse < 50", 1000, 499, true),
            ("inUse < 50", 1000, 500, false),
            ("inUse<50", 3, 1, true),
            ("inUse <= 50", 1000, 500, true),
            ("inUse <= 50%", 1000, 501, false),
            ("inUse > 50", 1000, 501, true),
            ("inUse >= 50", 1000, 500, true),
            ("inUse >= 100", 1000, 1000, true),
            ("inUse < 0", 1000, 0, false),
            ("size > 1Gi", 1024, 1, false),
            ("size > 1Gi", 1025, 1, true),
            ("size >= 1Gi", 1024, 1, true),
            ("size > 1.5Gi", 1536, 1, false),
            ("size > 1.5Gi", 1537, 1, true),
            ("size > 1G", 954, 1, true),
            ("size > 1G", 953, 1, false),
            ("size >= 1048576", 1, 1, true),
            ("inUse < 50 && size > 1Gi", 2048, 100, true),
            ("inUse < 50 && size > 1Gi", 2048, 2000, false),
            ("inUse < 50 && size > 1Gi", 512, 100, false),
            ("inUse < 50 || size > 1Gi", 512, 100, true),
            ("inUse < 50 || size > 1Gi", 2048, 2000, true),
            ("inUse < 50 || size > 1Gi", 512, 500, false),
            // As (a && b) || c.
            ("inUse < 50 && size > 1Gi || size > 4Gi", 8192, 8000, true),
            ("size > 4Gi || inUse < 50 && size > 1Gi", 8192, 8000, true),
            ("size > 4Gi || inUse < 50 && size > 1Gi", 2048, 2000, false),
        ];
        for (text, size, in_use, expected) in cases {
            let condition: DefragCondition = text.parse().expect(text);
            let mut observed = observed();
            observed.status(1).db_size = size * MEBIBYTE;
            observed.status(1).db_size_in_use = in_use * MEBIBYTE;
            assert_eq!(
                condition.holds(observed.status(1)),
                Some(*expected),
                "{text}: {in_use} of {size} MiB"
            );
            assert_eq!(condition.to_string(), *text);
        }
    }

    #[test]
    fn a_size_that_is_not_reported_is_unknown() {
        let condition: DefragCondition = "size < 1Gi".parse().expect("parses");
        let mut observed = observed();
        observed.status(1).db_size = 0;
        assert_eq!(condition.holds(observed.status(1)), None);
    }

    #[test]
    fn an_error_shows_what_is_accepted() {
        for (text, part) in [
            ("", ""),
            ("inUse", "inUse"),
            ("inUse <", "inUse <"),
            ("< 50", "< 50"),
            ("inUse < 50 &&", ""),
            ("inUse < 50 & size > 1Gi", "inUse < 50 & size > 1Gi"),
            ("inUse < 101", "inUse < 101"),
            ("inUse < -1", "inUse < -1"),
            ("inUse < 50.5", "inUse < 50.5"),
            ("inUse == 50", "inUse == 50"),
            ("inUse =< 50", "inUse =< 50"),
            ("inuse < 50", "inuse < 50"),
            ("free > 1Gi", "free > 1Gi"),
            ("size > 1GiB", "size > 1GiB"),
            ("size > 1gi", "size > 1gi"),
            ("size > +1", "size > +1"),
            ("size > 1.2345Gi", "size > 1.2345Gi"),
            ("size > .5Gi", "size > .5Gi"),
            ("size > 1.Gi", "size > 1.Gi"),
            ("size > 99999999999999999999", "size > 99999999999999999999"),
            ("size > 999999999999Ti", "size > 999999999999Ti"),
            ("(size > 1Gi)", "(size > 1Gi)"),
            ("size > 1Gi || inUse < a", "inUse < a"),
        ] {
            assert_eq!(
                text.parse::<DefragCondition>(),
                Err(format!("cannot read '{part}'; {ACCEPTED}")),
                "{text}"
            );
        }
        let long = ["size > 1Gi"; 50].join(" && ");
        assert_eq!(
            long.parse::<DefragCondition>(),
            Err(format!("at most 500 bytes are accepted; {ACCEPTED}"))
        );
    }
}
