//! Skips over JSON text. It accepts nothing that `serde_json` rejects.

mod skip;

use serde_json::value::RawValue;
use wide::u8x16;

/// The error for text that the scanner cannot continue with: it is not JSON, it is nested too deeply, or only
/// `serde_json` can decode it.
#[derive(Debug)]
pub(super) struct ScanStopped;

/// The nesting limit of `serde_json`.
const MAX_DEPTH: u8 = 127;

/// A position in JSON text.
pub(super) struct Scanner<'a> {
    text: &'a str,
    at: usize,
    depth: u8,
    values: usize,
    max_values: usize,
    known: Option<KnownValue<'a>>,
    /// Whether the text is known to be JSON, so that values may be skipped without checking them.
    is_json: bool,
}

/// The last value of an often repeated field, and the number of values in it.
struct KnownValue<'a> {
    text: &'a str,
    values: usize,
}

/// A JSON string with its quotes and escapes.
pub(super) struct Quoted<'a> {
    text: &'a str,
    has_escapes: bool,
}

impl<'a> Scanner<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self {
            text,
            at: 0,
            depth: 0,
            values: 0,
            max_values: usize::MAX,
            known: None,
            is_json: false,
        }
    }

    /// Scans a part of a document that has been parsed. Does not count the values that it skips.
    pub(super) fn of_part(part: &'a RawValue) -> Self {
        Self {
            is_json: true,
            ..Self::new(part.get())
        }
    }

    /// Makes the scanner stop in a document that has more values, at the latest at its end.
    pub(super) fn with_max_values(self, max_values: usize) -> Self {
        Self { max_values, ..self }
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

    /// Checks that only white space follows, and that the document does not have too many values.
    pub(super) fn end(&mut self) -> Result<(), ScanStopped> {
        match self.peek() {
            Ok(_) => Err(ScanStopped),
            Err(ScanStopped) => self.check_values(),
        }
    }

    /// Skips a value and returns its text.
    #[inline]
    pub(super) fn value(&mut self) -> Result<&'a str, ScanStopped> {
        Ok(self.capture(Self::skip)?.1)
    }

    /// Reads a value. Also returns its text, without white space before it.
    pub(super) fn capture<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, ScanStopped>,
    ) -> Result<(T, &'a str), ScanStopped> {
        self.peek()?;
        let start = self.at;
        let value = read(self)?;
        Ok((value, self.since(start)?))
    }

    /// Consumes the opening bracket of a list or an object.
    pub(super) fn open(&mut self) -> Result<(), ScanStopped> {
        self.at += 1;
        self.values += 1;
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(ScanStopped);
        }
        self.check_values()
    }

    fn check_values(&self) -> Result<(), ScanStopped> {
        if self.values > self.max_values {
            Err(ScanStopped)
        } else {
            Ok(())
        }
    }

    /// Consumes a closing bracket.
    fn close(&mut self) {
        self.at += 1;
        self.depth -= 1;
    }

    /// Whether a list or an object has another item. Consumes the comma before it, or the closing bracket.
    pub(super) fn has_next(&mut self, is_first: bool, closing: u8) -> Result<bool, ScanStopped> {
        match self.peek()? {
            byte if byte == closing => {
                self.close();
                Ok(false)
            }
            _ if is_first => Ok(true),
            b',' => {
                self.at += 1;
                self.values += 1;
                self.check_values()?;
                Ok(true)
            }
            _ => Err(ScanStopped),
        }
    }

    /// Skips the key of a field and the colon.
    pub(super) fn key(&mut self) -> Result<Quoted<'a>, ScanStopped> {
        let key = self.string()?;
        self.colon()?;
        Ok(key)
    }

    fn colon(&mut self) -> Result<(), ScanStopped> {
        if self.peek()? != b':' {
            return Err(ScanStopped);
        }
        self.at += 1;
        Ok(())
    }

    /// Skips a string.
    pub(super) fn string(&mut self) -> Result<Quoted<'a>, ScanStopped> {
        self.peek()?;
        let start = self.at;
        let has_escapes = self.skip_string()?;
        self.since(start).map(|text| Quoted { text, has_escapes })
    }

    /// Skips a string, and returns whether it contains escapes.
    fn skip_string(&mut self) -> Result<bool, ScanStopped> {
        let [b'"', content @ ..] = self.rest() else {
            return Err(ScanStopped);
        };
        let special = first_special(content);
        self.at += 1 + special;
        match content.get(special) {
            Some(b'"') => {
                self.at += 1;
                Ok(false)
            }
            Some(b'\\') => self.skip_escapes().map(|()| true),
            _ => Err(ScanStopped),
        }
    }

    /// Skips the rest of a string from its first escape on. Few strings have escapes, and the code for all others is shorter
    /// without them.
    #[inline(never)]
    fn skip_escapes(&mut self) -> Result<(), ScanStopped> {
        loop {
            match self.rest() {
                [b'"', ..] => {
                    self.at += 1;
                    return Ok(());
                }
                [b'\\', escape @ ..] => {
                    let length = 1 + escape_length(escape).ok_or(ScanStopped)?;
                    self.at += length;
                    self.at += first_special(self.rest());
                }
                _ => return Err(ScanStopped),
            }
        }
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

    /// Reads a value, and remembers its text, so that the scanner skips an object that equals it.
    pub(super) fn remember<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, ScanStopped>,
    ) -> Result<T, ScanStopped> {
        let before = self.values;
        let (value, text) = self.capture(read)?;
        let values = self.values - before;
        self.known = Some(KnownValue { text, values });
        Ok(value)
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
        self.text
    }

    /// Whether this is the name of the field that is the largest part of most objects, and that most updates repeat
    /// unchanged.
    pub(super) fn is_often_repeated_field(&self) -> bool {
        self.text == r#""kubeadmConfigSpec""#
    }

    /// The string without its quotes; `None` if it contains escapes.
    pub(super) fn unescaped(&self) -> Option<&'a str> {
        let content = self.text.get(1..self.text.len() - 1)?;
        (!self.has_escapes).then_some(content)
    }
}

/// The position of the first byte that is not part of a string's plain text: a quote, a backslash or a control character. The
/// length of the text if there is none.
#[inline]
fn first_special(text: &[u8]) -> usize {
    let mut rest = text;
    while let Some((chunk, after)) = rest.split_first_chunk() {
        let special = special_bytes(*chunk);
        if special != 0 {
            return text.len() - rest.len() + special.trailing_zeros() as usize;
        }
        rest = after;
    }
    let is_special = |byte: &u8| matches!(byte, b'"' | b'\\' | ..b' ');
    let in_rest = rest.iter().position(is_special);
    text.len() - rest.len() + in_rest.unwrap_or(rest.len())
}

/// A bit for each byte, the first byte lowest: 1 for a quote, a backslash or a control character.
#[inline]
fn special_bytes(chunk: [u8; 16]) -> u32 {
    let bytes = u8x16::new(chunk);
    let quotes = bytes.simd_eq(u8x16::splat(b'"'));
    let backslashes = bytes.simd_eq(u8x16::splat(b'\\'));
    let controls = bytes.simd_eq(bytes.min(u8x16::splat(b' ' - 1)));
    (quotes | backslashes | controls).to_bitmask()
}

/// The length of an escape without its backslash; `None` if there is no such escape. Accepts unpaired surrogates, as
/// `serde_json` does for strings that it does not decode.
fn escape_length(after_backslash: &[u8]) -> Option<usize> {
    match after_backslash {
        [b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't', ..] => Some(1),
        [b'u', one, two, three, four, ..]
            if [one, two, three, four]
                .iter()
                .all(|digit| digit.is_ascii_hexdigit()) =>
        {
            Some(5)
        }
        _ => None,
    }
}
