//! Skips values of any size without decoding them.

use memchr::memchr;

use super::{KnownValue, ScanStopped, Scanner};

impl Scanner<'_> {
    /// Skips a value.
    pub(super) fn skip(&mut self) -> Result<(), ScanStopped> {
        if self.is_json {
            self.skip_json()
        } else {
            self.check_and_skip()
        }
    }

    /// Skips a value, checks that it is JSON, and counts its values.
    fn check_and_skip(&mut self) -> Result<(), ScanStopped> {
        let outside = self.depth;
        // A bit for each open bracket, the innermost lowest: 1 for an object, 0 for a list.
        let mut objects = 0_u128;
        loop {
            match self.peek()? {
                b'"' => _ = self.skip_string()?,
                b'{' if self.skip_known() => {}
                b'{' => {
                    self.open()?;
                    objects = objects << 1 | 1;
                    if self.peek()? != b'}' && !self.field()? {
                        continue;
                    }
                }
                b'[' => {
                    self.open()?;
                    objects <<= 1;
                    if self.peek()? != b']' {
                        continue;
                    }
                }
                b't' => self.literal("true")?,
                b'f' => self.literal("false")?,
                b'n' => self.literal("null")?,
                _ => self.number()?,
            }
            // After a value follow any number of closing brackets, and then a comma.
            loop {
                if self.depth == outside {
                    return Ok(());
                }
                let is_in_object = objects & 1 == 1;
                match self.peek()? {
                    b',' => {
                        self.at += 1;
                        self.values += 1;
                        if !(is_in_object && self.field()?) {
                            break;
                        }
                    }
                    b'}' if is_in_object => {
                        self.close();
                        objects >>= 1;
                    }
                    b']' if !is_in_object => {
                        self.close();
                        objects >>= 1;
                    }
                    _ => return Err(ScanStopped),
                }
            }
        }
    }

    /// Skips the name of a field and the colon. If the field is often repeated, also skips and remembers its value, and
    /// returns true.
    fn field(&mut self) -> Result<bool, ScanStopped> {
        let is_often_repeated = self.key()?.is_often_repeated_field();
        if is_often_repeated {
            self.remember(Self::skip)?;
        }
        Ok(is_often_repeated)
    }

    /// Skips the object that the scanner remembers, if it follows.
    fn skip_known(&mut self) -> bool {
        // A prefix match is enough, because an object ends with its closing bracket.
        let Some(KnownValue { text, values }) = &self.known else {
            return false;
        };
        let is_known = self.rest().starts_with(text.as_bytes());
        if is_known {
            self.at += text.len();
            self.values += values;
        }
        is_known
    }

    /// Skips a value of a text that is JSON. Finds only the end of strings and the brackets.
    fn skip_json(&mut self) -> Result<(), ScanStopped> {
        let mut open = 0_usize;
        loop {
            match self.byte().ok_or(ScanStopped)? {
                b'"' => self.skip_json_string()?,
                b'{' | b'[' => {
                    open += 1;
                    self.at += 1;
                    continue;
                }
                b'}' | b']' => {
                    open = open.checked_sub(1).ok_or(ScanStopped)?;
                    self.at += 1;
                }
                b',' | b':' | b' ' | b'\n' | b'\r' | b'\t' => {
                    self.at += 1;
                    continue;
                }
                _ => self.skip_scalar(),
            }
            if open == 0 {
                return Ok(());
            }
        }
    }

    /// Skips a string of a text that is JSON. A quote ends the string unless an odd number of backslashes precedes it.
    fn skip_json_string(&mut self) -> Result<(), ScanStopped> {
        loop {
            self.at += 1;
            let rest = self.rest();
            let end = memchr(b'"', rest).ok_or(ScanStopped)?;
            let before = rest.get(..end).unwrap_or_default().iter().rev();
            self.at += end;
            if before
                .take_while(|byte| **byte == b'\\')
                .count()
                .is_multiple_of(2)
            {
                self.at += 1;
                return Ok(());
            }
        }
    }

    /// Skips a number, `true`, `false` or `null` of a text that is JSON.
    fn skip_scalar(&mut self) {
        let is_part = |byte: &&u8| !matches!(byte, b',' | b'}' | b']' | b' ' | b'\n' | b'\r' | b'\t');
        self.at += self.rest().iter().take_while(is_part).count();
    }
}
