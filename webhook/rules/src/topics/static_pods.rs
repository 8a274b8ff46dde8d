//! The static Pods that kubelets start from `files`, if their manifests can be read.
//!
//! Users write the manifests, so the work of a review is limited: for each of the old and the new object, a
//! review parses at most [`MAX_MANIFESTS`] files with [`MAX_BYTES`] in total, and at most [`MAX_EVENTS`] of
//! the YAML parser in each file.

use serde_json::Value;

use super::{files::files, leader_migration::inline_content};
use crate::{
    api::{ControlPlaneSpec, machine_setup::File},
    leader_migration::workload::CLOUD_CONTROLLER_MANAGER,
};

/// The folder from which the kubelet of a kubeadm Machine starts static Pods.
const STATIC_POD_FOLDER: &str = "/etc/kubernetes/manifests/";

/// The maximum number of bytes of manifests that a review parses for one object.
const MAX_BYTES: usize = 64 * 1024;

/// The maximum number of manifests that a review parses for one object. A control plane has one
/// cloud-controller-manager.
const MAX_MANIFESTS: usize = 4;

/// The maximum number of events of the YAML parser (such as a scalar, or the start of a list) in a static Pod. The events that
/// aliases repeat are counted separately, with the same limit. A long Pod has about 500 events.
const MAX_EVENTS: usize = 5_000;

/// A static Pod in `files` that can be read.
#[derive(Debug)]
pub struct StaticPod {
    /// The index of the static Pod in `files`.
    pub index: usize,
    pub manifest: Value,
}

/// The static Pods in `files` that mention a cloud-controller-manager.
#[derive(Debug, Default)]
pub struct StaticPods {
    /// The static Pods that can be read.
    pub readable: Vec<StaticPod>,
    /// The index of the first file that mentions a cloud-controller-manager, but cannot be parsed or is too long.
    pub first_unreadable: Option<usize>,
    /// The index of the first file that is not plain text in the object, so it may mention a cloud-controller-manager.
    pub first_not_plain_text: Option<usize>,
    /// The number of bytes that were parsed.
    pub parsed_bytes: usize,
}

/// Finds the static Pods in `files` that mention a cloud-controller-manager.
pub fn find_cloud_static_pods(spec: &ControlPlaneSpec<'_>) -> StaticPods {
    let mut pods = StaticPods::default();
    let mut parsed = 0;
    for (index, file) in files(spec).filter(|(_, file)| is_static_pod(file)) {
        if is_hidden(file) {
            pods.first_not_plain_text.get_or_insert(index);
            continue;
        }
        let Some(text) = inline_content(file).filter(|text| text.contains(CLOUD_CONTROLLER_MANAGER)) else {
            continue;
        };
        let is_within_limits = parsed < MAX_MANIFESTS && pods.parsed_bytes + text.len() <= MAX_BYTES;
        if is_within_limits {
            parsed += 1;
            pods.parsed_bytes += text.len();
        }
        match is_within_limits.then(|| first_document(&text)).flatten() {
            // The kubelet starts Pods only.
            Some(manifest) if manifest.get("kind").and_then(Value::as_str) == Some("Pod") => {
                pods.readable.push(StaticPod { index, manifest });
            }
            Some(_) => {}
            None => {
                pods.first_unreadable.get_or_insert(index);
            }
        }
    }
    pods
}

/// Whether the kubelet reads the file as a static Pod: it is directly in [`STATIC_POD_FOLDER`], and its name does not begin with a
/// dot.
fn is_static_pod(file: &File<'_>) -> bool {
    let name = file
        .path
        .as_deref()
        .and_then(|path| path.strip_prefix(STATIC_POD_FOLDER));
    name.is_some_and(|name| !name.is_empty() && !name.contains('/') && !name.starts_with('.'))
}

fn is_hidden(file: &File<'_>) -> bool {
    file.content_from.is_some()
        || file
            .encoding
            .as_deref()
            .is_some_and(|encoding| !encoding.is_empty())
}

/// The first YAML document in the text, which is the only one that the kubelet reads; `None` if it is too long or not
/// valid.
fn first_document(text: &str) -> Option<Value> {
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! { max_depth: 64, max_events: MAX_EVENTS },
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: MAX_EVENTS },
        with_snippet: false,
    };
    let mut bytes = text.as_bytes();
    serde_saphyr::read_with_options(&mut bytes, options).next()?.ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{
        api::{KubeadmControlPlane, decode},
        testing::case::{Base, V1BETA2},
    };

    /// How many static Pods were read, the first one that was not, and how many bytes were parsed.
    fn work(texts: &[String]) -> (usize, Option<usize>, usize) {
        let mut object = Base::ControlPlane(V1BETA2).object();
        let files: Vec<_> = texts
            .iter()
            .enumerate()
            .map(|(index, text)| json!({"path": format!("{STATIC_POD_FOLDER}{index}.yaml"), "content": text}))
            .collect();
        json_patch::merge(
            &mut object,
            &json!({"spec": {"kubeadmConfigSpec": {"files": files}}}),
        );
        let text = object.to_string();
        let control_plane: KubeadmControlPlane<'_> = decode(&text).unwrap();
        let pods = find_cloud_static_pods(&control_plane.common_spec());
        (pods.readable.len(), pods.first_unreadable, pods.parsed_bytes)
    }

    #[test]
    fn the_work_for_one_object_is_bounded() {
        let padded = |bytes: usize| {
            let pod = format!("kind: Pod # {CLOUD_CONTROLLER_MANAGER}\n");
            format!("{pod}{}", "#".repeat(bytes.saturating_sub(pod.len())))
        };
        let aliases = |count: usize| {
            format!(
                "kind: Pod # {CLOUD_CONTROLLER_MANAGER}\na: &a x\nb: [{}]",
                "*a,".repeat(count)
            )
        };
        for (case, texts, expected) in [
            ("one", vec![padded(1_000)], (1, None, 1_000)),
            ("one of the largest size", vec![padded(65_536)], (1, None, 65_536)),
            ("one that is too long", vec![padded(65_537)], (0, Some(0), 0)),
            ("together too long", vec![padded(40_000); 6], (1, Some(1), 40_000)),
            ("too many", vec![padded(100); 100], (4, Some(4), 400)),
            ("few aliases", vec![aliases(50)], (1, None, aliases(50).len())),
            (
                "aliases",
                vec![aliases(10_000)],
                (0, Some(0), aliases(10_000).len()),
            ),
            ("too long aliases", vec![aliases(45_000); 6], (0, Some(0), 0)),
            // Files of other programs are not parsed.
            ("others", vec!["kind: Pod".to_owned(); 100], (0, None, 0)),
        ] {
            assert_eq!(work(&texts), expected, "{case}");
        }
    }
}
