//! Generates random names of holders and random ids of leases, with the letters that Kubernetes uses in generated names.

use std::hash::{BuildHasher as _, RandomState};

use kcp_rules::syntax::is_dns1123_label;

/// The letters and digits of Kubernetes' generated names: no vowels, and no digits that look like letters.
const NAME_CHARACTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// The number of random characters in a generated name. With 27^8 names, the chance that two of a thousand holders get the
/// same name, and would count as one holder, is about one in half a million.
const RANDOM_CHARACTERS: usize = 8;

/// Parses the prefix of generated names. A cluster's namespace has the cluster's name, so a name with this prefix must be a
/// valid name of a namespace. The error says what is wrong with the prefix, in one sentence.
pub fn parse_prefix(text: &str) -> Result<String, String> {
    if !text.is_empty() && is_dns1123_label(name(text, 0).as_bytes()) {
        return Ok(text.to_owned());
    }
    Err(format!(
        "a prefix must be at most {} characters long, must contain only lowercase letters, digits and '-', and must \
         begin with a letter or digit",
        63 - RANDOM_CHARACTERS
    ))
}

/// Generates a random name that begins with this prefix.
pub fn generate(prefix: &str) -> String {
    // Use the keys of the standard library's hash maps, which are random.
    name(prefix, RandomState::new().hash_one(prefix))
}

/// Generates the random id of a new lease, one of 27^16.
pub fn generate_lease_id() -> String {
    generate(&generate(""))
}

fn name(prefix: &str, random: u64) -> String {
    let mut name = prefix.to_owned();
    let mut rest = random;
    for _ in 0..RANDOM_CHARACTERS {
        let count = NAME_CHARACTERS.len() as u64;
        let letter = usize::try_from(rest % count)
            .ok()
            .and_then(|index| NAME_CHARACTERS.get(index));
        name.extend(letter.map(|letter| char::from(*letter)));
        rest /= count;
    }
    name
}

#[cfg(test)]
mod tests {
    use super::{generate, name, parse_prefix};

    #[test]
    fn a_name_follows_from_its_random_number() {
        assert_eq!(name("ci-", 0), "ci-bbbbbbbb");
        assert_eq!(name("ci-", 1 + 27 * 26), "ci-c9bbbbbb");
        assert_eq!(name("ci-", u64::MAX).len(), 11);
    }

    #[test]
    fn generated_names_differ() {
        assert_ne!(generate("ci-"), generate("ci-"));
    }

    #[test]
    fn a_prefix_must_fit_a_namespace() {
        for prefix in ["a", "ci-", "9", &"a".repeat(55)] {
            assert_eq!(parse_prefix(prefix).as_deref(), Ok(prefix));
        }
        for prefix in ["", "-", "A", "a.", "a/", &"a".repeat(56)] {
            assert!(parse_prefix(prefix).is_err(), "{prefix}");
        }
    }
}
