//! The limits on the results, and whether the results meet them.

use std::fmt::Write as _;

use serde_json::Value;

/// A result, one of its figures, and the limit on it.
const LIMITS: [(&str, &str, f64); 9] = [
    ("create-2k-mutate", "cpu_ratio_to_decode", 1.7),
    ("create-2k-validate", "cpu_ratio_to_decode", 1.7),
    ("update-16k-mutate", "cpu_ratio_to_decode", 1.2),
    ("update-16k-validate", "cpu_ratio_to_decode", 1.2),
    ("update-300k-mutate", "cpu_ratio_to_decode", 1.2),
    ("update-300k-validate", "cpu_ratio_to_decode", 1.2),
    ("start", "exec_to_first_answer_ms", 15.0),
    ("memory", "idle_mib", 8.0),
    ("memory", "peak_mib", 24.0),
];

/// The machine, and all figures with their limits.
pub(crate) fn table(report: &Value) -> String {
    let mut table = format!("{}\n", report["machine"].as_str().unwrap_or_default());
    line(&mut table, ["result", "figure", "value", "limit", ""]);
    for result in report["results"].as_array().into_iter().flatten() {
        let name = result["name"].as_str().unwrap_or_default();
        for (figure, value) in figures(result) {
            let limit = LIMITS.iter().find(|limit| (limit.0, limit.1) == (name, &*figure));
            let verdict = match limit {
                Some(limit) if value <= limit.2 => "met",
                Some(_) => "missed",
                None => "",
            };
            let limit = limit.map_or(String::new(), |limit| limit.2.to_string());
            line(&mut table, [name, &figure, &value.to_string(), &limit, verdict]);
        }
    }
    table
}

/// The figures of a result, then those of each server, prefixed with the server's name.
fn figures(result: &Value) -> Vec<(String, f64)> {
    let fields = || result.as_object().into_iter().flatten();
    let own = fields().filter_map(|(figure, value)| Some((figure.clone(), value.as_f64()?)));
    let of_servers = fields().flat_map(|(server, figures)| {
        let figures = figures.as_object().into_iter().flatten();
        figures.filter_map(move |(figure, value)| Some((format!("{server} {figure}"), value.as_f64()?)))
    });
    own.chain(of_servers).collect()
}

fn line(table: &mut String, [result, figure, value, limit, verdict]: [&str; 5]) {
    let line = format!("{result:<22}{figure:<42}{value:>12}{limit:>7}  {verdict}");
    // Writing to a string cannot fail.
    _ = writeln!(table, "{}", line.trim_end());
}
