//! The steps of a page of the book.

/// The end of the heading of steps that need another cluster than that of the demo.
const ELSEWHERE: &str = "On a cluster of yours";

/// A command of a page and its output.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) command: String,
    pub(super) output: String,
}

impl Step {
    /// Whether the next line belongs to the command: up to the line `END`, or after a backslash.
    fn is_open(&self) -> bool {
        self.command.ends_with('\\') || self.command.contains("<<END") && !self.command.ends_with("\nEND")
    }

    /// Whether the command only reads, so that it can run again until its output is the expected one.
    pub(super) fn only_reads(&self) -> bool {
        ["status", "why", "audit", "plan", "pool status", "pool repair"]
            .iter()
            .any(|verb| self.command.starts_with(&format!("kubectl kcp {verb}")))
    }
}

/// The steps in the blocks of a page that begin with `console`, up to the heading of those for a cluster of one's own.
pub(crate) fn steps(page: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut is_console = false;
    let demo = page.lines().take_while(|line| !line.ends_with(ELSEWHERE));
    for line in demo {
        if line.starts_with("```") {
            is_console = line == "```console";
            continue;
        }
        if !is_console {
            continue;
        }
        let open = steps.last_mut().filter(|step| step.is_open());
        if let Some(step) = open {
            step.command += "\n";
            step.command += line;
        } else if let Some(command) = line.strip_prefix("$ ") {
            steps.push(Step {
                command: command.to_owned(),
                output: String::new(),
            });
        } else if let Some(step) = steps.last_mut() {
            step.output += line;
            step.output.push('\n');
        }
    }
    steps
}

#[test]
fn steps_are_the_commands_and_their_screens() {
    let page = "text\n```text\n$ not a step\n```\n```console\n$ cat > a <<END\n$ b\nEND\n$ kubectl get \\\n    pods\nNAME\n...\n```\n\
                ## 7. On a cluster of yours\n```console\n$ kubectl delete pods --all\n```\n";
    let step = |command: &str, output: &str| Step {
        command: command.to_owned(),
        output: output.to_owned(),
    };
    let expected = [
        step("cat > a <<END\n$ b\nEND", ""),
        step("kubectl get \\\n    pods", "NAME\n...\n"),
    ];
    assert_eq!(steps(page), expected);
}
