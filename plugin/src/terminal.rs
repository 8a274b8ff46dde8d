//! Prints results on stdout, and `error:` and `hint:` on stderr.
//!
//! Text always contains colours; the streams strip them if stdout or stderr does not support colours.

use std::{
    io::{self, IsTerminal as _, Write},
    pin::pin,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anstream::{AutoStream, ColorChoice};

mod confirm;
pub mod escape;
pub mod frame;
pub mod style;
pub mod table;
pub mod width;

pub use escape::{escape, escape_json, escape_lines, escape_text};
pub use frame::Size;
use indicatif::{ProgressBar, ProgressFinish};
use jiff::{Timestamp, tz::TimeZone};
use owo_colors::OwoColorize as _;
use rustix::event::{PollFd, PollFlags, Timespec};
use tokio::time::timeout;

use crate::arguments::global::ColorWhen;
use frame::frame;

/// How long a command waits in silence.
const SPINNER_DELAY: Duration = Duration::from_secs(1);

/// Writes to stdout and stderr. Clones share the same state.
#[derive(Clone, Debug)]
pub struct Terminal {
    color: ColorChoice,
    shared: Arc<Mutex<Shared>>,
}

#[derive(Debug, Default)]
struct Shared {
    warnings: Vec<String>,
    spinner: Option<ProgressBar>,
    on_interrupt: Option<String>,
    /// Whether the program that reads stdout through a pipe has closed the pipe.
    is_unread: bool,
}

impl Terminal {
    pub fn new(color: ColorWhen) -> Self {
        let color = match color {
            ColorWhen::Auto => ColorChoice::Auto,
            ColorWhen::Always => ColorChoice::Always,
            ColorWhen::Never => ColorChoice::Never,
        };
        Self {
            color,
            shared: Arc::default(),
        }
    }

    /// Writes a result to stdout without escaping it. A closed pipe is not an error, so that the verdict still determines
    /// the exit code.
    pub fn print(&self, text: &str) -> io::Result<()> {
        self.around_spinner(|| {
            let mut stdout = AutoStream::new(io::stdout(), self.color).lock();
            self.note_closed_pipe(stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()))
        })
    }

    /// Writes a line to stdout.
    pub fn print_line(&self, text: &str) -> io::Result<()> {
        self.print(&format!("{text}\n"))
    }

    /// Whether the program that reads stdout through a pipe has closed the pipe, so that a watch can end.
    pub fn is_stdout_closed(&self) -> bool {
        let stdout = io::stdout();
        let mut stdout = [PollFd::new(&stdout, PollFlags::empty())];
        let now = Timespec::default();
        // If the pipe is closed, poll reports an error even before a write.
        let is_left = rustix::event::poll(&mut stdout, Some(&now)).is_ok()
            && stdout
                .iter()
                .any(|stdout| stdout.revents().contains(PollFlags::ERR));
        let shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        is_left || shared.is_unread
    }

    fn note_closed_pipe(&self, written: io::Result<()>) -> io::Result<()> {
        match written {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.shared
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .is_unread = true;
                Ok(())
            }
            other => other,
        }
    }

    /// The size of the terminal; `None` if stdout is not a terminal.
    pub fn size() -> Option<Size> {
        let (width, height) = terminal_size::terminal_size_of(io::stdout())?;
        Some(Size {
            width: width.0.into(),
            height: height.0.into(),
        })
    }

    /// Draws a screen over the previous screen. `is_first` means that there is no earlier screen.
    pub fn draw(&self, screen: &str, size: Size, is_first: bool) -> io::Result<()> {
        // Bypass the stream, because it would also strip the movements of the cursor.
        let choice = match self.color {
            ColorChoice::Auto => AutoStream::choice(&io::stdout()),
            choice => choice,
        };
        let bytes = if choice == ColorChoice::Never {
            frame(&anstream::adapter::strip_str(screen).to_string(), size, is_first)
        } else {
            frame(screen, size, is_first)
        };
        self.around_spinner(|| {
            let mut stdout = io::stdout().lock();
            self.note_closed_pipe(stdout.write_all(bytes.as_bytes()).and_then(|()| stdout.flush()))
        })
    }

    /// Writes an error with its causes and a hint to stderr, one line each.
    pub fn error(&self, error: &anyhow::Error, hint: Option<&str>) {
        self.stderr(&format!(
            "{} {}",
            "error:".red().bold(),
            escape(&format!("{error:#}"))
        ));
        if let Some(hint) = hint {
            self.hint(hint);
        }
    }

    pub fn hint(&self, text: &str) {
        self.stderr(&format!("{} {}", "hint:".cyan().bold(), escape(text)));
    }

    /// Writes a line to stderr.
    pub fn note(&self, text: &str) {
        self.stderr(&escape(text));
    }

    pub fn warning(&self, text: &str) {
        self.note(&format!("warning: {text}"));
    }

    /// Writes a warning to stderr, unless this command has written the same warning before.
    pub fn warning_once(&self, text: &str) {
        let is_new = {
            let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
            let warnings = &mut shared.warnings;
            let is_new = !warnings.iter().any(|warning| warning == text);
            if is_new {
                warnings.push(text.to_owned());
            }
            is_new
        };
        if is_new {
            self.warning(text);
        }
    }

    fn stderr(&self, line: &str) {
        self.around_spinner(|| {
            // If stderr cannot be written, there is no other place to report the error.
            let _ = writeln!(AutoStream::new(io::stderr(), self.color).lock(), "{line}");
        });
    }

    /// Shows a spinner if stderr is a terminal. Other lines are printed above it.
    pub fn spin(&self, message: &str) {
        if !io::stderr().is_terminal() {
            return;
        }
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        let spinner = shared.spinner.get_or_insert_with(|| {
            let spinner = ProgressBar::new_spinner().with_finish(ProgressFinish::AndClear);
            spinner.enable_steady_tick(Duration::from_millis(120));
            spinner
        });
        spinner.set_message(escape(message).into_owned());
    }

    /// Waits for work. If it takes longer than a second, a spinner says for what the user waits.
    pub async fn spin_while<T>(&self, message: &str, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        if let Ok(result) = timeout(SPINNER_DELAY, &mut work).await {
            return result;
        }
        self.spin(message);
        let result = work.await;
        self.stop_spinning();
        result
    }

    pub fn stop_spinning(&self) {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(spinner) = shared.spinner.take() {
            spinner.finish_and_clear();
        }
    }

    /// Sets the text to print if the user interrupts the command. The text says what continues in the cluster, and how to
    /// watch it.
    pub fn set_interrupt_note(&self, note: impl Into<String>) {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        shared.on_interrupt = Some(note.into());
    }

    /// Forgets the text of [`Terminal::set_interrupt_note`], because nothing continues in the cluster.
    pub fn clear_interrupt_note(&self) {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        shared.on_interrupt = None;
    }

    /// Prints the text that was set with [`Terminal::set_interrupt_note`].
    pub fn print_interrupt_note(&self) {
        self.stop_spinning();
        let note = {
            let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
            shared.on_interrupt.take()
        };
        if let Some(note) = note {
            self.note(&note);
        }
    }

    fn around_spinner<R>(&self, write: impl FnOnce() -> R) -> R {
        let spinner = {
            let shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
            shared.spinner.clone()
        };
        match spinner {
            Some(spinner) => spinner.suspend(write),
            None => write(),
        }
    }
}

/// The local time of day, with which a watch begins each line that it prints.
pub fn format_time_of_day(at: Timestamp) -> String {
    at.to_zoned(TimeZone::system()).strftime("%H:%M:%S").to_string()
}

/// Text without colours.
#[cfg(test)]
pub(crate) fn plain(text: &str) -> String {
    anstream::adapter::strip_str(text).to_string()
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::Terminal;
    use crate::arguments::global::ColorWhen;

    #[test]
    fn a_closed_pipe_is_silent_and_a_full_disk_is_not() {
        let terminal = Terminal::new(ColorWhen::Never);
        let written = |kind: io::ErrorKind| terminal.note_closed_pipe(Err(kind.into()));
        assert!(written(io::ErrorKind::StorageFull).is_err());
        assert!(!terminal.is_stdout_closed());
        assert!(written(io::ErrorKind::BrokenPipe).is_ok());
        assert!(terminal.clone().is_stdout_closed());
    }
}
