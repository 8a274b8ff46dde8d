//! Encrypts snapshots with age (<https://age-encryption.org/v1>), so that they never exist unencrypted on a disk.

use std::{
    ffi::OsStr,
    io::{self, Write},
};

use clap::{
    Arg, Command, Error,
    builder::{StringValueParser, TypedValueParser},
    error::ErrorKind,
};

pub(crate) use self::age_format::Recipient;
use self::age_format::StreamWriter;

#[cfg(feature = "encryption")]
mod age_format {
    //! Encryption with the crate age.

    use std::io::Write;

    use age::Encryptor;
    pub(crate) use age::{stream::StreamWriter, x25519::Recipient};
    use anyhow::Context as _;

    pub(super) fn encrypt<W: Write>(output: W, recipients: &[Recipient]) -> anyhow::Result<StreamWriter<W>> {
        let recipients = recipients.iter().map(|key| key as &dyn age::Recipient);
        let encryptor = Encryptor::with_recipients(recipients).context("cannot encrypt the snapshot")?;
        encryptor.wrap_output(output).context("cannot write the snapshot")
    }
}

#[cfg(not(feature = "encryption"))]
mod age_format {
    //! The same names without the crate age. No public key can be parsed, so nothing is ever encrypted.

    use std::{
        convert::Infallible,
        fmt,
        io::{self, Write},
        marker::PhantomData,
        str::FromStr,
    };

    /// A public key, which has no value.
    #[derive(Clone, Debug)]
    pub struct Recipient(Infallible);

    impl FromStr for Recipient {
        type Err = &'static str;

        fn from_str(_: &str) -> Result<Self, Self::Err> {
            Err("this program has no encryption")
        }
    }

    impl fmt::Display for Recipient {
        fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
            match self.0 {}
        }
    }

    pub(crate) struct StreamWriter<W>(Infallible, PhantomData<W>);

    impl<W> StreamWriter<W> {
        pub(super) fn finish(self) -> io::Result<W> {
            match self.0 {}
        }
    }

    impl<W> Write for StreamWriter<W> {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            match self.0 {}
        }

        fn flush(&mut self) -> io::Result<()> {
            match self.0 {}
        }
    }

    pub(super) fn encrypt<W: Write>(_: W, recipients: &[Recipient]) -> anyhow::Result<StreamWriter<W>> {
        match recipients {
            [key, ..] => match key.0 {},
            [] => anyhow::bail!("there is no public key to encrypt the snapshot for"),
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
    if !cfg!(feature = "encryption") {
        return "this kubectl-kcp cannot encrypt, because it was built without the Cargo feature `encryption`; pipe the \
                snapshot into the program age: kubectl kcp etcd snapshot NAME --file -\n"
            .to_owned();
    }
    format!(
        "--age-recipient needs the public key of an age key pair, which begins with age1: {reason}; to encrypt the \
         snapshot for an SSH key or a plugin of age, pipe it into the program age: kubectl kcp etcd snapshot NAME --file -\n"
    )
}

/// Writes a snapshot, encrypted or not.
pub(crate) enum SnapshotWriter<W: Write> {
    Plain(W),
    Encrypted(StreamWriter<W>),
}

impl<W: Write> SnapshotWriter<W> {
    /// Encrypts the data so that only the owners of the public keys can decrypt it. Without public keys,
    /// writes the data unencrypted.
    ///
    /// # Errors
    /// The header cannot be written.
    pub(crate) fn new(output: W, recipients: &[Recipient]) -> anyhow::Result<Self> {
        if recipients.is_empty() {
            return Ok(Self::Plain(output));
        }
        age_format::encrypt(output, recipients).map(Self::Encrypted)
    }

    /// Writes the end of the snapshot. age does not decrypt an encrypted snapshot that lacks its end.
    ///
    /// # Errors
    /// The output cannot be written.
    pub(crate) fn finish(self) -> io::Result<()> {
        match self {
            Self::Plain(mut output) => output.flush(),
            Self::Encrypted(writer) => writer.finish()?.flush(),
        }
    }
}

impl<W: Write> Write for SnapshotWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(output) => output.write(bytes),
            Self::Encrypted(writer) => writer.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(output) => output.flush(),
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
