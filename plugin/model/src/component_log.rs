//! The log of a component as the kubelet returns it, with the time of each line, and the logs of several Machines in one order.

use jiff::Timestamp;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    pub time: Timestamp,
    pub text: String,
}

/// The lines of a log. A line without a time, which the kubelet itself writes, has the time of the line before.
pub fn parse(text: &str) -> Vec<LogLine> {
    let mut last = Timestamp::UNIX_EPOCH;
    let line = |line: &str| {
        let (time, rest) = line.split_once(' ').unwrap_or((line, ""));
        let text = match time.parse() {
            Ok(time) => {
                last = time;
                rest
            }
            Err(_) => line,
        };
        LogLine {
            time: last,
            text: text.to_owned(),
        }
    };
    text.lines().map(line).collect()
}

/// The lines of several logs by their time, each with the name of its log. Lines of the same time keep the order of the logs.
pub fn merge<'l>(logs: impl IntoIterator<Item = (&'l str, Vec<LogLine>)>) -> Vec<(&'l str, LogLine)> {
    let logs = logs.into_iter();
    let mut lines: Vec<(&str, LogLine)> = logs
        .flat_map(|(name, lines)| lines.into_iter().map(move |line| (name, line)))
        .collect();
    lines.sort_by_key(|(_, line)| line.time);
    lines
}

#[cfg(test)]
mod tests {
    use super::{merge, parse};

    const FIRST: &str = "2026-12-01T12:00:00.000000001Z {\"msg\":\"a  b\"}\n2026-12-01T12:00:02Z \n";
    const SECOND: &str = "unable to retrieve the log\n2026-12-01T12:00:00.5Z I1201 started\ncut off\n";

    #[test]
    fn a_line_without_a_time_follows_the_one_before() {
        let lines: Vec<(i64, String)> = parse(SECOND)
            .into_iter()
            .map(|line| (line.time.as_millisecond(), line.text))
            .collect();
        let half = 1_796_126_400_500;
        assert_eq!(
            lines,
            [
                (0, "unable to retrieve the log".to_owned()),
                (half, "I1201 started".to_owned()),
                (half, "cut off".to_owned()),
            ]
        );
    }

    #[test]
    fn lines_of_several_logs_are_in_the_order_of_their_times() {
        let merged = merge([("m1", parse(FIRST)), ("m2", parse(SECOND))]);
        let lines: Vec<String> = merged
            .iter()
            .map(|(name, line)| format!("{name} {}", line.text))
            .collect();
        assert_eq!(
            lines,
            [
                "m2 unable to retrieve the log",
                "m1 {\"msg\":\"a  b\"}",
                "m2 I1201 started",
                "m2 cut off",
                "m1 ",
            ]
        );
    }
}
