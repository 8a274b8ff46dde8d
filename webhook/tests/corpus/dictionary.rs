//! The words that fuzzers put in whole: libFuzzer's dictionary, one quoted word a line
//! (llvm.org/docs/LibFuzzer.html#dictionaries).

use std::{collections::BTreeSet, fs, path::Path};

use kcp_rules::topics::rules;

/// libFuzzer takes no longer word.
const WORD_BYTES: usize = 64;

/// The lists of fields, by kind and version, of what is judged.
const LISTS: [&str; 7] = [
    "kubeadmcontrolplane-v1beta1",
    "kubeadmcontrolplane-v1beta2",
    "kubeadmcontrolplanetemplate-v1beta1",
    "kubeadmcontrolplanetemplate-v1beta2",
    "clusterpool-v1",
    "clusterdeploymentcustomization-v1",
    "clusterdeployment-v1",
];

/// Names and values that stand in no list of fields: of reviews, of metadata, of patches, of the configuration.
const STRINGS: &str = "
    uid resource subResource group version name namespace operation userInfo username options fieldManager object
    oldObject dryRun request CREATE UPDATE DELETE CONNECT admission.k8s.io/v1 AdmissionReview
    controlplane.cluster.x-k8s.io controlplane.cluster.x-k8s.io/v1beta1 controlplane.cluster.x-k8s.io/v1beta2 v1beta1
    v1beta2 KubeadmControlPlane KubeadmControlPlaneTemplate kubeadmcontrolplanes kubeadmcontrolplanetemplates scale Scale
    hive.openshift.io hive.openshift.io/v1 v1 ClusterPool ClusterDeployment ClusterDeploymentCustomization clusterpools
    clusterdeployments clusterdeploymentcustomizations ClusterImageSet List items apiVersion kind metadata annotations
    labels generateName deletionTimestamp resourceVersion ownerReferences finalizers add remove replace move copy test op
    path from value valueJSON RollingUpdate OnDelete cloud-config ignition base64 gzip NoSchedule Available Paused
    kubectl-kcp.dev/v1alpha1 AdmissionConfiguration rules featureGates machineTaints off audit warn deny
";

/// Other words, as they stand.
const OTHERS: [&str; 33] = [
    "null",
    "true",
    "-1",
    "1e400",
    "9223372036854775808",
    "{}",
    "[]",
    "[{}]",
    ":",
    ",",
    "\"\"",
    "\\ud800",
    "\\u0000",
    "{{ .random }}",
    "{{ .cluster.name }}",
    "v1.36.0",
    "v1.37.1",
    "25%",
    "2026-01-01T00:00:00Z",
    "../",
    "~0",
    "~1",
    "/-",
    "[!a-z]*",
    "---\n",
    "- ",
    ": ",
    "&a ",
    "*a",
    "<<: ",
    "!!str ",
    "|\n",
    "# ",
];

/// The dictionary's text.
pub(crate) fn text(root: &Path) -> String {
    let mut words = BTreeSet::new();
    for list in LISTS {
        let file = root.join("tests/fixtures/fields").join(format!("{list}.txt"));
        let list = fs::read_to_string(file).unwrap();
        let paths = list.lines().filter(|line| !line.starts_with('#'));
        let paths = paths.filter_map(|line| line.split('\t').next());
        let steps = paths.flat_map(|path| path.split(['.', '[', ']', '{', '}']));
        words.extend(steps.filter(|step| !step.is_empty()).map(quoted));
    }
    words.extend(STRINGS.split_whitespace().map(quoted));
    words.extend(rules().map(|rule| quoted(rule.id)));
    words.extend(OTHERS.map(str::to_owned));
    words.retain(|word| word.len() <= WORD_BYTES);
    let head = "# Names of fields, and words that decide, as JSON writes them; written by UPDATE_CORPUS=1.\n"
        .to_owned();
    words.iter().fold(head, |text, word| text + &line(word))
}

fn quoted(word: &str) -> String {
    format!("\"{word}\"")
}

/// A word as libFuzzer reads it: quotes and backslashes escaped, and what is not printed in hexadecimal.
fn line(word: &str) -> String {
    let escaped = word
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\x0A");
    format!("\"{escaped}\"\n")
}
