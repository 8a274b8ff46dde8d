//! Passes over JSON text. It takes nothing that `serde_json` would not.

use memchr::{memchr, memchr_iter};
use serde_json::value::RawValue;

/// What is not JSON, or is nested too deep.
#[derive(Debug)]
pub(super) struct GivenUp;

/// As deep as `serde_json` decodes.
const DEPTH: u8 = 127;

/// The largest field of most objects, which most updates leave as it is.
const OFTEN_REPEATED: &str = r#""kubeadmConfigSpec""#;

/// A place in a text.
pub(super) struct Scanner<'a> {
    text: &'a str,
    at: usize,
    depth: u8,
    values: usize,
    /// Of what is JSON for sure, strings are not looked into.
    is_json: bool,
    known: Option<Known<'a>>,
}

/// An object that was passed already.
struct Known<'a> {
    text: &'a str,
    values: usize,
}

/// A string as it is written.
pub(super) struct Quoted<'a>(&'a str);

impl<'a> Scanner<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self {
            text,
            at: 0,
            depth: 0,
            values: 0,
            is_json: false,
            known: None,
        }
    }

    /// A text that was passed before.
    pub(super) fn again(text: &'a RawValue) -> Self {
        Self {
            is_json: true,
            ..Self::new(text.get())
        }
    }

    /// With an object that may stand there. Its values are not counted.
    pub(super) fn beside(mut self, known: &'a RawValue) -> Self {
        self.know(known.get(), 0);
        self
    }

    /// The brackets and commas that were passed.
    pub(super) fn values(&self) -> usize {
        self.values
    }

    /// The next byte that is no white space. It is not passed.
    pub(super) fn peek(&mut self) -> Result<u8, GivenUp> {
        loop {
            match self.byte() {
                Some(b' ' | b'\n' | b'\r' | b'\t') => self.at += 1,
                Some(byte) => return Ok(byte),
                None => return Err(GivenUp),
            }
        }
    }

    /// Nothing may follow but white space.
    pub(super) fn end(&mut self) -> Result<(), GivenUp> {
        match self.peek() {
            Ok(_) => Err(GivenUp),
            Err(GivenUp) => Ok(()),
        }
    }

    /// Passes a value, and says how it is written.
    pub(super) fn value(&mut self) -> Result<&'a str, GivenUp> {
        self.passing(Self::pass)
    }

    /// What `pass` passes, without the white space before it.
    pub(super) fn passing(
        &mut self,
        pass: impl FnOnce(&mut Self) -> Result<(), GivenUp>,
    ) -> Result<&'a str, GivenUp> {
        self.peek()?;
        let start = self.at;
        pass(self)?;
        self.since(start)
    }

    /// Passes the opening bracket of a list or an object, which was peeked.
    pub(super) fn open(&mut self) -> Result<(), GivenUp> {
        self.at += 1;
        self.values += 1;
        self.depth += 1;
        if self.depth > DEPTH { Err(GivenUp) } else { Ok(()) }
    }

    /// Goes to the next item of a list or an object: passes the comma before it, or the bracket after the last.
    pub(super) fn another(&mut self, is_first: bool, closing: u8) -> Result<bool, GivenUp> {
        match self.peek()? {
            byte if byte == closing => {
                self.at += 1;
                self.depth -= 1;
                Ok(false)
            }
            _ if is_first => Ok(true),
            b',' => {
                self.at += 1;
                self.values += 1;
                Ok(true)
            }
            _ => Err(GivenUp),
        }
    }

    /// Passes the key of a field and the colon.
    pub(super) fn key(&mut self) -> Result<Quoted<'a>, GivenUp> {
        let key = self.string()?;
        if self.peek()? != b':' {
            return Err(GivenUp);
        }
        self.at += 1;
        Ok(key)
    }

    /// Passes a string.
    pub(super) fn string(&mut self) -> Result<Quoted<'a>, GivenUp> {
        if self.peek()? != b'"' {
            return Err(GivenUp);
        }
        let start = self.at;
        self.at += 1;
        let content = self.rest();
        let end = closing_quote(content).ok_or(GivenUp)?;
        if !self.is_json && content.get(..end).is_none_or(|content| !says_something(content)) {
            return Err(GivenUp);
        }
        self.at += end + 1;
        self.since(start).map(Quoted)
    }

    /// Passes a literal name.
    pub(super) fn word(&mut self, word: &str) -> Result<(), GivenUp> {
        if self.rest().starts_with(word.as_bytes()) {
            self.at += word.len();
            Ok(())
        } else {
            Err(GivenUp)
        }
    }

    /// Passes a number.
    pub(super) fn number(&mut self) -> Result<(), GivenUp> {
        self.pass_any(b"-");
        match self.byte() {
            Some(b'0') => self.at += 1,
            _ => self.digits()?,
        }
        if self.pass_any(b".") {
            self.digits()?;
        }
        if self.pass_any(b"eE") {
            self.pass_any(b"+-");
            self.digits()?;
        }
        Ok(())
    }

    fn pass(&mut self) -> Result<(), GivenUp> {
        match self.peek()? {
            b'"' => self.string().map(|_| ()),
            b'{' => self.object(),
            b'[' => self.list(),
            b't' => self.word("true"),
            b'f' => self.word("false"),
            b'n' => self.word("null"),
            _ => self.number(),
        }
    }

    fn list(&mut self) -> Result<(), GivenUp> {
        self.open()?;
        let mut is_first = true;
        while self.another(is_first, b']')? {
            is_first = false;
            self.pass()?;
        }
        Ok(())
    }

    fn object(&mut self) -> Result<(), GivenUp> {
        // It ends with its bracket, whatever follows.
        if let Some(known) = &self.known
            && self.rest().starts_with(known.text.as_bytes())
        {
            self.at += known.text.len();
            self.values += known.values;
            return Ok(());
        }
        self.open()?;
        let mut is_first = true;
        while self.another(is_first, b'}')? {
            is_first = false;
            if self.key()?.text() == OFTEN_REPEATED {
                let before = self.values;
                let text = self.value()?;
                self.know(text, self.values - before);
            } else {
                self.pass()?;
            }
        }
        Ok(())
    }

    fn know(&mut self, text: &'a str, values: usize) {
        self.known = Some(Known { text, values });
    }

    fn digits(&mut self) -> Result<(), GivenUp> {
        let count = self
            .rest()
            .iter()
            .take_while(|byte| byte.is_ascii_digit())
            .count();
        self.at += count;
        if count == 0 { Err(GivenUp) } else { Ok(()) }
    }

    fn pass_any(&mut self, bytes: &[u8]) -> bool {
        let is_there = self.byte().is_some_and(|byte| bytes.contains(&byte));
        self.at += usize::from(is_there);
        is_there
    }

    fn byte(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn rest(&self) -> &'a [u8] {
        self.text.as_bytes().get(self.at..).unwrap_or_default()
    }

    fn since(&self, start: usize) -> Result<&'a str, GivenUp> {
        self.text.get(start..self.at).ok_or(GivenUp)
    }
}

impl<'a> Quoted<'a> {
    /// With its quotes.
    pub(super) fn text(&self) -> &'a str {
        self.0
    }

    /// Between its quotes, if it says there what it means.
    pub(super) fn plain(&self) -> Option<&'a str> {
        let content = self.0.get(1..self.0.len() - 1)?;
        memchr(b'\\', content.as_bytes()).is_none().then_some(content)
    }
}

/// Where the quote stands that no backslash escapes.
fn closing_quote(content: &[u8]) -> Option<usize> {
    memchr_iter(b'"', content).find(|quote| {
        let before = content.iter().take(*quote).rev();
        before
            .take_while(|byte| **byte == b'\\')
            .count()
            .is_multiple_of(2)
    })
}

/// Whether a string is free of control characters, and each of its escapes is one. Surrogates need not pair, as long as
/// nobody decodes them.
fn says_something(content: &[u8]) -> bool {
    // Not `all`, which would look at one byte at a time to stop at the first.
    let least = content.iter().fold(u8::MAX, |least, byte| least.min(*byte));
    if least < b' ' {
        return false;
    }
    let mut rest = content;
    while let Some(backslash) = memchr(b'\\', rest) {
        rest = match rest.get(backslash + 1..) {
            Some([b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't', rest @ ..]) => rest,
            Some([b'u', one, two, three, four, rest @ ..])
                if [one, two, three, four]
                    .iter()
                    .all(|digit| digit.is_ascii_hexdigit()) =>
            {
                rest
            }
            _ => return false,
        };
    }
    true
}
