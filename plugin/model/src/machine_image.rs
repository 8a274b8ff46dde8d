//! Whether new Machines of an upgrade may get the kubelet of the old version, because the infrastructure template names an image.

use kcp_api::Reference;
use kcp_rules::syntax::parse_version;
use serde_json::Value;

/// The infrastructure templates of an upgrade.
#[derive(Clone, Debug, PartialEq)]
pub struct Templates {
    /// The current template, or why it could not be read.
    pub current: Result<Value, String>,
    /// The name and the object of the template after the upgrade. `None` if it stays.
    pub new: Option<(String, Value)>,
}

/// Says that an upgrade may need a different infrastructure template if it keeps the current one. `None` if only the patch version
/// changes and no field of the template contains the current version.
pub fn notice(
    reference: &Reference,
    template: &Result<Value, String>,
    from: &str,
    to: &str,
) -> Option<String> {
    let name = format!("{} {}", reference.kind, reference.name);
    let (old, new) = (parse_version(from).ok()?, parse_version(to).ok()?);
    let is_patch = (old.major, old.minor) == (new.major, new.minor);
    let needle = if is_patch {
        old.to_string()
    } else {
        format!("{}.{}", old.major, old.minor)
    };
    let fields = match template {
        Ok(template) => fields_with(template, &needle),
        Err(why) => {
            return Some(format!(
                "could not read {name}: {why}; if it names an image of {from}, new Machines get the old kubelet: choose another template \
                 with --infrastructure-template"
            ));
        }
    };
    match fields.as_slice() {
        [] if is_patch => None,
        [] => Some(format!(
            "the infrastructure template stays {name}; if it names an image of {from}, new Machines get the old kubelet: choose \
             another template with --infrastructure-template"
        )),
        fields => Some(format!(
            "warning: the infrastructure template stays {name}, which contains {needle} in {}; if this text names the image, new \
             Machines get the old kubelet: choose another template with --infrastructure-template",
            fields.join(", ")
        )),
    }
}

/// The paths of the texts in `spec` that contain a version.
fn fields_with(template: &Value, version: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut open = vec![("spec".to_owned(), template.get("spec").unwrap_or(&Value::Null))];
    while let Some((path, value)) = open.pop() {
        match value {
            Value::String(text) if contains(text, version) => found.push(path),
            Value::Array(items) => {
                let items = items.iter().enumerate();
                open.extend(items.map(|(index, item)| (format!("{path}[{index}]"), item)));
            }
            Value::Object(fields) => {
                open.extend(
                    fields
                        .iter()
                        .map(|(name, field)| (format!("{path}.{name}"), field)),
                );
            }
            _ => {}
        }
    }
    found.sort();
    found
}

/// Whether a text contains a version that is not a part of longer numbers: `1.3` is not in `1.33` or `21.3`.
fn contains(text: &str, version: &str) -> bool {
    text.match_indices(version).any(|(start, found)| {
        let before = text.get(..start).and_then(|before| before.chars().next_back());
        let after = text
            .get(start + found.len()..)
            .and_then(|after| after.chars().next());
        !before.is_some_and(|c| c.is_ascii_digit() || c == '.') && !after.is_some_and(|c| c.is_ascii_digit())
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::notice;
    use crate::testing::plan::template;

    #[test]
    fn a_template_that_stays_is_reported_if_it_may_name_an_image() {
        const STAYS: &str = "the infrastructure template stays DockerMachineTemplate t1; if it names an image of v1.33.6, new Machines get \
                             the old kubelet: choose another template with --infrastructure-template";
        let contains = |what: &str| {
            format!(
                "warning: the infrastructure template stays DockerMachineTemplate t1, which contains {what}; if this text names the image, new Machines get the old kubelet: choose another template with --infrastructure-template"
            )
        };
        let image =
            |name: &str| json!({"spec": {"template": {"spec": {"image": {"name": name}, "size": 2}}}});
        for (object, to, expected) in [
            (
                image("ubuntu-v1.33.6"),
                "v1.34.2",
                Some(contains("1.33 in spec.template.spec.image.name")),
            ),
            (
                image("ubuntu-1.33"),
                "v1.34.2",
                Some(contains("1.33 in spec.template.spec.image.name")),
            ),
            (image("ubuntu-1.33"), "v1.33.9", None),
            (
                image("kube_1.33.6"),
                "v1.33.9",
                Some(contains("1.33.6 in spec.template.spec.image.name")),
            ),
            (image("kube_1.33.61"), "v1.33.9", None),
            (image("ubuntu"), "v1.34.2", Some(STAYS.to_owned())),
            (image("ubuntu"), "v1.33.9", None),
            (image("1.334, 21.33, 2.1.33"), "v1.34.2", Some(STAYS.to_owned())),
            (
                json!({"spec": {"template": {"spec": {"disks": [{"from": "a"}, {"from": "n-1.33.6"}]}}}}),
                "v1.34.2",
                Some(contains("1.33 in spec.template.spec.disks[1].from")),
            ),
        ] {
            let text = object.to_string();
            assert_eq!(
                notice(&template("t1"), &Ok(object), "v1.33.6", to),
                expected,
                "{text} to {to}"
            );
        }
        let unread = notice(
            &template("t1"),
            &Err("forbidden".to_owned()),
            "v1.33.6",
            "v1.34.2",
        );
        insta::assert_snapshot!(unread.expect("a notice"), @"could not read DockerMachineTemplate t1: forbidden; if it names an image of v1.33.6, new Machines get the old kubelet: choose another template with --infrastructure-template");
    }
}
