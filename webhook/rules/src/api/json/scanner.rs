//! Skips over JSON text. It accepts nothing that `serde_json` rejects.

use memchr::{memchr, memchr_iter};
use serde_json::value::RawValue;

/// The error for text that the scanner cannot continue with: it is not JSON, it is nested too deeply, or only
/// `serde_json` can decode it.
#[derive(Debug)]
pub(super) struct ScanStopped;

/// The nesting limit of `serde_json`.
const MAX_DEPTH: u8 = 127;

/// The name of the field that is the largest part of most objects, and that most updates repeat unchanged.
const OFTEN_REPEATED: &str = r#""kubeadmConfigSpec""#;

/// A position in JSON text.
pub(super) struct Scanner<'a> {
    text: &'a str,
    at: usize,
    depth: u8,
    values: usize,
    /// Whether the text is known to be valid JSON. If it is, the scanner does not validate the content of
    /// strings.
    is_valid: bool,
    known: Option<KnownObject<'a>>,
}

/// An object that the scanner has skipped before, and the number of values in it.
struct KnownObject<'a> {
    text: &'a str,
    values: usize,
}

/// A JSON string with its quotes and escapes.
pub(super) struct Quoted<'a>(&'a str);

impl<'a> Scanner<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self {
            text,
            at: 0,
            depth: 0,
            values: 0,
            is_valid: false,
            known: None,
        }
    }

    /// Scans text that is known to be valid JSON.
    pub(super) fn for_valid_json(text: &'a RawValue) -> Self {
        Self {
            is_valid: true,
            ..Self::new(text.get())
        }
    }

    /// Makes the scanner skip an object that equals `known`, without counting its values.
    pub(super) fn with_known(mut self, known: &'a RawValue) -> Self {
        self.remember(known.get(), 0);
        self
    }

    /// The number of opening brackets and commas so far.
    pub(super) fn values(&self) -> usize {
        self.values
    }

    /// Skips white space and returns the next byte without consuming it.
    pub(super) fn peek(&mut self) -> Result<u8, ScanStopped> {
        loop {
            match self.byte() {
                Some(b' ' | b'\n' | b'\r' | b'\t') => self.at += 1,
                Some(byte) => return Ok(byte),
                None => return Err(ScanStopped),
            }
        }
    }

    /// Checks that only white space follows.
    pub(super) fn end(&mut self) -> Result<(), ScanStopped> {
        match self.peek() {
            Ok(_) => Err(ScanStopped),
            Err(ScanStopped) => Ok(()),
        }
    }

    /// Skips a value and returns its text.
    pub(super) fn value(&mut self) -> Result<&'a str, ScanStopped> {
        self.capture(Self::skip)
    }

    /// Returns the text that `skip` consumes, without white space before it.
    pub(super) fn capture(
        &mut self,
        skip: impl FnOnce(&mut Self) -> Result<(), ScanStopped>,
    ) -> Result<&'a str, ScanStopped> {
        self.peek()?;
        let start = self.at;
        skip(self)?;
        self.since(start)
    }

    /// Consumes the opening bracket of a list or an object.
    pub(super) fn open(&mut self) -> Result<(), ScanStopped> {
        self.at += 1;
        self.values += 1;
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            Err(ScanStopped)
        } else {
            Ok(())
        }
    }

    /// Whether a list or an object has another item. Consumes the comma before it, or the closing bracket.
    pub(super) fn has_next(&mut self, is_first: bool, closing: u8) -> Result<bool, ScanStopped> {
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
            _ => Err(ScanStopped),
        }
    }

    /// Skips the key of a field and the colon.
    pub(super) fn key(&mut self) -> Result<Quoted<'a>, ScanStopped> {
        let key = self.string()?;
        if self.peek()? != b':' {
            return Err(ScanStopped);
        }
        self.at += 1;
        Ok(key)
    }

    /// Skips a string.
    pub(super) fn string(&mut self) -> Result<Quoted<'a>, ScanStopped> {
        if self.peek()? != b'"' {
            return Err(ScanStopped);
        }
        let start = self.at;
        self.at += 1;
        let content = self.rest();
        let end = closing_quote(content).ok_or(ScanStopped)?;
        if !self.is_valid
            && content
                .get(..end)
                .is_none_or(|content| !is_valid_content(content))
        {
            return Err(ScanStopped);
        }
        self.at += end + 1;
        self.since(start).map(Quoted)
    }

    /// Skips `true`, `false` or `null`.
    pub(super) fn literal(&mut self, literal: &str) -> Result<(), ScanStopped> {
        if self.rest().starts_with(literal.as_bytes()) {
            self.at += literal.len();
            Ok(())
        } else {
            Err(ScanStopped)
        }
    }

    /// Skips a number.
    pub(super) fn number(&mut self) -> Result<(), ScanStopped> {
        self.skip_any(b"-");
        match self.byte() {
            Some(b'0') => self.at += 1,
            _ => self.digits()?,
        }
        if self.skip_any(b".") {
            self.digits()?;
        }
        if self.skip_any(b"eE") {
            self.skip_any(b"+-");
            self.digits()?;
        }
        Ok(())
    }

    fn skip(&mut self) -> Result<(), ScanStopped> {
        match self.peek()? {
            b'"' => self.string().map(|_| ()),
            b'{' => self.object(),
            b'[' => self.list(),
            b't' => self.literal("true"),
            b'f' => self.literal("false"),
            b'n' => self.literal("null"),
            _ => self.number(),
        }
    }

    fn list(&mut self) -> Result<(), ScanStopped> {
        self.open()?;
        let mut is_first = true;
        while self.has_next(is_first, b']')? {
            is_first = false;
            self.skip()?;
        }
        Ok(())
    }

    fn object(&mut self) -> Result<(), ScanStopped> {
        // A prefix match is enough, because an object ends with its closing bracket.
        if let Some(known) = &self.known
            && self.rest().starts_with(known.text.as_bytes())
        {
            self.at += known.text.len();
            self.values += known.values;
            return Ok(());
        }
        self.open()?;
        let mut is_first = true;
        while self.has_next(is_first, b'}')? {
            is_first = false;
            if self.key()?.text() == OFTEN_REPEATED {
                let before = self.values;
                let text = self.value()?;
                self.remember(text, self.values - before);
            } else {
                self.skip()?;
            }
        }
        Ok(())
    }

    fn remember(&mut self, text: &'a str, values: usize) {
        self.known = Some(KnownObject { text, values });
    }

    fn digits(&mut self) -> Result<(), ScanStopped> {
        let count = self
            .rest()
            .iter()
            .take_while(|byte| byte.is_ascii_digit())
            .count();
        self.at += count;
        if count == 0 { Err(ScanStopped) } else { Ok(()) }
    }

    fn skip_any(&mut self, bytes: &[u8]) -> bool {
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

    fn since(&self, start: usize) -> Result<&'a str, ScanStopped> {
        self.text.get(start..self.at).ok_or(ScanStopped)
    }
}

impl<'a> Quoted<'a> {
    /// The string with its quotes.
    pub(super) fn text(&self) -> &'a str {
        self.0
    }

    /// The string without its quotes; `None` if it contains escapes.
    pub(super) fn unescaped(&self) -> Option<&'a str> {
        let content = self.0.get(1..self.0.len() - 1)?;
        memchr(b'\\', content.as_bytes()).is_none().then_some(content)
    }
}

/// The position of the first quote that is not escaped.
fn closing_quote(content: &[u8]) -> Option<usize> {
    memchr_iter(b'"', content).find(|quote| {
        let before = content.iter().take(*quote).rev();
        before
            .take_while(|byte| **byte == b'\\')
            .count()
            .is_multiple_of(2)
    })
}

/// Whether a string has no control characters and only valid escapes. Accepts unpaired surrogates, as
/// `serde_json` does for strings that it does not decode.
fn is_valid_content(content: &[u8]) -> bool {
    // A fold is vectorized; `all` would check byte by byte.
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
