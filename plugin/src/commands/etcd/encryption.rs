//! Encrypts snapshots with age (<https://age-encryption.org/v1>), so that they never exist unencrypted on a disk.

use std::{
    ffi::OsStr,
    io::{self, Write},
};

#[cfg(feature = "encryption")]
use anyhow::Context as _;
use clap::{
    Arg, Command, Error,
    builder::{StringValueParser, TypedValueParser},
    error::ErrorKind,
};

#[cfg(feature = "encryption")]
pub(crate) use age::x25519::Recipient;

#[cfg(not(feature = "encryption"))]
pub(crate) use self::stub::Recipient;

#[cfg(not(feature = "encryption"))]
mod stub {
    use std::{fmt, str::FromStr};

    /// A public key in a program that has no encryption: it cannot be parsed, so none exists.
    #[derive(Clone, Debug)]
    pub enum Recipient {}

    impl FromStr for Recipient {
        type Err = &'static str;

        fn from_str(_: &str) -> Result<Self, Self::Err> {
            Err("this program has no encryption")
        }
    }

    impl fmt::Display for Recipient {
        fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
            match *self {}
        }
    }
}

/// Parses the public key of an age key pair. An invalid value is never printed, because it can be a private key.
#[derive(Clone, Debug)]
pub(crate) struct RecipientParser;

impl TypedValueParser for RecipientParser {
    type Value = Recipient;

    fn parse_ref(
        &self,
        command: &Command,
        argument: Option<&Arg>,
        value: &OsStr,
    ) -> Result<Recipient, Error> {
        let text = StringValueParser::new().parse_ref(command, argument, value)?;
        text.parse().map_err(|reason| {
            let message = invalid_recipient(&text, reason);
            Error::raw(ErrorKind::ValueValidation, message).with_cmd(command)
        })
    }
}

fn invalid_recipient(text: &str, reason: &str) -> String {
    const PRIVATE_KEY_PREFIX: &str = "AGE-SECRET-KEY-";

    let prefix = text.get(..PRIVATE_KEY_PREFIX.len());
    if prefix.is_some_and(|prefix| prefix.eq_ignore_ascii_case(PRIVATE_KEY_PREFIX)) {
        return "--age-recipient needs a public key, but its value is a private key; to print the public key, use: \
                age-keygen -y KEY-FILE\n"
            .to_owned();
    }
    let pipe = "pipe the snapshot into the program age: kubectl kcp etcd snapshot NAME --file -";
    if cfg!(feature = "encryption") {
        format!(
            "--age-recipient needs the public key of an age key pair, which begins with age1: {reason}; to encrypt for an SSH \
             key or a plugin of age, {pipe}\n"
        )
    } else {
        format!(
            "this kubectl-kcp cannot encrypt, because it was built without the Cargo feature `encryption`; {pipe}\n"
        )
    }
}

/// Writes a snapshot, encrypted or not.
pub(crate) enum SnapshotWriter<W: Write> {
    Plain(W),
    #[cfg(feature = "encryption")]
    Encrypted(age::stream::StreamWriter<W>),
}

impl<W: Write> SnapshotWriter<W> {
    /// Encrypts the data so that only the owners of the public keys can decrypt it. Without public keys,
    /// writes the data unencrypted.
    ///
    /// # Errors
    /// The header cannot be written.
    #[cfg_attr(
        not(feature = "encryption"),
        expect(clippy::unnecessary_wraps, reason = "only an encrypted snapshot has a header")
    )]
    pub(crate) fn new(output: W, recipients: &[Recipient]) -> anyhow::Result<Self> {
        match recipients {
            [] => Ok(Self::Plain(output)),
            #[cfg(feature = "encryption")]
            keys => {
                let recipients = keys.iter().map(|key| key as &dyn age::Recipient);
                let encryptor =
                    age::Encryptor::with_recipients(recipients).context("cannot encrypt the snapshot")?;
                let writer = encryptor
                    .wrap_output(output)
                    .context("cannot write the snapshot")?;
                Ok(Self::Encrypted(writer))
            }
            #[cfg(not(feature = "encryption"))]
            [key, ..] => match *key {},
        }
    }

    /// Writes the end of the snapshot. age does not decrypt an encrypted snapshot that lacks its end.
    ///
    /// # Errors
    /// The output cannot be written.
    pub(crate) fn finish(self) -> io::Result<()> {
        match self {
            Self::Plain(mut output) => output.flush(),
            #[cfg(feature = "encryption")]
            Self::Encrypted(writer) => writer.finish()?.flush(),
        }
    }
}

impl<W: Write> Write for SnapshotWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(output) => output.write(bytes),
            #[cfg(feature = "encryption")]
            Self::Encrypted(writer) => writer.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(output) => output.flush(),
            #[cfg(feature = "encryption")]
            Self::Encrypted(writer) => writer.flush(),
        }
    }
}

#[cfg(all(test, feature = "encryption"))]
mod tests {
    use clap::{Arg, ArgAction, Command};

    use super::{Recipient, RecipientParser};

    fn parse(values: &[&str]) -> Result<Vec<String>, String> {
        let flag = Arg::new("recipient")
            .long("age-recipient")
            .action(ArgAction::Append)
            .value_parser(RecipientParser);
        let flags = values.iter().map(|value| format!("--age-recipient={value}"));
        let words = std::iter::once("snapshot".to_owned()).chain(flags);
        let parsed = Command::new("snapshot").arg(flag).try_get_matches_from(words);
        let mut parsed = parsed.map_err(|error| error.to_string())?;
        let recipients = parsed.remove_many::<Recipient>("recipient").into_iter().flatten();
        Ok(recipients.map(|recipient| recipient.to_string()).collect())
    }

    /// The public key in age's documentation.
    const PUBLIC_KEY: &str = "age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p";

    #[test]
    fn recipients_are_public_keys() {
        assert_eq!(
            parse(&[PUBLIC_KEY, PUBLIC_KEY]),
            Ok(vec![PUBLIC_KEY.to_owned(); 2])
        );
    }

    #[test]
    fn an_invalid_key_is_never_printed() {
        for (value, expected) in [
            (
                "age-secret-key-1GFPYYSJZGFPYYSJZGFPYYSJZ",
                "its value is a private key; ",
            ),
            (
                "age1ql3z7hjy54pw3hyww5ayyfg7z",
                "begins with age1: invalid Bech32 encoding; ",
            ),
            (
                "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5",
                "begins with age1: invalid Bech32 encoding; ",
            ),
        ] {
            let error = parse(&[PUBLIC_KEY, value]).unwrap_err();
            assert!(error.contains(expected) && !error.contains(value), "{error}");
        }
    }
}
