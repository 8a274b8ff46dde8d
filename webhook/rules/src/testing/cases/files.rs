//! Cases of the rules in [`crate::topics::files`].

use crate::testing::case::Case;

const CONTENT_AND_CONTENT_FROM: &str = r#"{"spec":{"kubeadmConfigSpec":{"files":[{"path":"/a","content":"x"},
    {"path":"/b","content":"x","contentFrom":{"secret":{"name":"a","key":"b"}}}]}}}"#;
const NAMELESS: &str = r#"{"spec":{"kubeadmConfigSpec":{"files":[
    {"path":"/a","contentFrom":{"secret":{"name":"","key":"b"}}},
    {"path":"/b","contentFrom":{"secret":{"name":"a"}}}]}}}"#;

pub(super) const CASES: &[Case] = &[
    Case::create(
        "accepts_content_and_secrets",
        r#"{"spec":{"kubeadmConfigSpec":{"files":[{"path":"/a","content":"x"},
            {"path":"/b","contentFrom":{"secret":{"name":"a","key":"b"}}}]}}}"#,
        &[],
    ),
    Case::create(
        "rejects_content_and_secret_of_one_file",
        CONTENT_AND_CONTENT_FROM,
        &[(
            "file-content-conflict",
            "spec.kubeadmConfigSpec.files[1].contentFrom",
        )],
    ),
    Case::create(
        "warns_of_file_without_content",
        r#"{"spec":{"kubeadmConfigSpec":{"files":[{"path":"/a"}]}}}"#,
        &[("file-content-missing", "spec.kubeadmConfigSpec.files[0].content")],
    ),
    Case::create(
        "rejects_incomplete_secrets",
        NAMELESS,
        &[
            (
                "file-secret-incomplete",
                "spec.kubeadmConfigSpec.files[0].contentFrom.secret.name",
            ),
            (
                "file-secret-incomplete",
                "spec.kubeadmConfigSpec.files[1].contentFrom.secret.key",
            ),
        ],
    ),
    Case::create(
        "rejects_duplicate_path",
        r#"{"spec":{"kubeadmConfigSpec":{"files":[{"path":"/a","content":"x"},{"path":"/a","content":"y"}]}}}"#,
        &[("file-path-duplicate", "spec.kubeadmConfigSpec.files[1].path")],
    ),
    Case::template(
        "rejects_files_in_template",
        r#"{"spec":{"template":{"spec":{"kubeadmConfigSpec":{"files":[{"path":"/a","content":"x","contentFrom":{}},
            {"path":"/a"}]}}}}}"#,
        &[
            (
                "file-content-conflict",
                "spec.template.spec.kubeadmConfigSpec.files[0].contentFrom",
            ),
            (
                "file-content-missing",
                "spec.template.spec.kubeadmConfigSpec.files[1].content",
            ),
            (
                "file-secret-incomplete",
                "spec.template.spec.kubeadmConfigSpec.files[0].contentFrom.secret.name",
            ),
            (
                "file-secret-incomplete",
                "spec.template.spec.kubeadmConfigSpec.files[0].contentFrom.secret.key",
            ),
            (
                "file-path-duplicate",
                "spec.template.spec.kubeadmConfigSpec.files[1].path",
            ),
        ],
    ),
];
