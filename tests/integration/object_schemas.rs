//! The schemas with which `kubectl kcp lint` checks Cluster API's kinds: they are derived from Cluster API's definitions, and an API
//! server with these definitions gives the same answers.

#![expect(
    clippy::indexing_slicing,
    reason = "what is not in a JSON object is null, and fails the test"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::{BufWriter, Write as _};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::{env, fs};

use anyhow::{Context as _, Result, bail, ensure};
use http_body_util::BodyExt as _;
use jiff::Timestamp;
use kcp_rules::Configuration;
use kcp_tests::assets::Assets;
use kcp_tests::{manifests, products};
use kube::Client;
use kube::client::Body;
use kubectl_kcp::commands::lint;
use serde_json::{Map, Value, json};

use crate::shared::with_management_cluster;

/// The folders of the definitions in the assets.
const PROVIDERS: [&str; 3] = ["core", "bootstrap/kubeadm", "controlplane/kubeadm"];

/// The kinds that `lint` checks.
const KINDS: [&str; 7] = [
    "Cluster",
    "KubeadmConfig",
    "KubeadmConfigTemplate",
    "KubeadmControlPlane",
    "KubeadmControlPlaneTemplate",
    "MachineDeployment",
    "MachineHealthCheck",
];

/// The keywords that `lint` knows.
const KEYWORDS: [&str; 19] = [
    "additionalProperties",
    "enum",
    "format",
    "items",
    "maxItems",
    "maxLength",
    "maximum",
    "minItems",
    "minLength",
    "minProperties",
    "minimum",
    "pattern",
    "properties",
    "required",
    "type",
    "x-kubernetes-int-or-string",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-list-type",
    "x-kubernetes-preserve-unknown-fields",
];

/// Keywords that reject no object, and two that `lint` leaves out: `anyOf` repeats `x-kubernetes-int-or-string`, and
/// `x-kubernetes-validations` are expressions in CEL.
const LEFT_OUT: [&str; 5] = [
    "anyOf",
    "default",
    "description",
    "x-kubernetes-map-type",
    "x-kubernetes-validations",
];

/// The strings in v1beta1 that the conversion to v1beta2 reads as durations.
const DURATIONS: [&str; 9] = [
    "minHealthyPeriod",
    "nodeDeletionTimeout",
    "nodeDrainTimeout",
    "nodeStartupTimeout",
    "nodeVolumeDetachTimeout",
    "retryPeriod",
    "timeout",
    "timeoutForControlPlane",
    "ttl",
];

/// Schemas that are shorter than this are not shared.
const MIN_SHARED_BYTES: usize = 80;

const DNS_SUBDOMAIN: &str = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";
const LABEL_VALUE: &str = "^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$";
const DNS_LABEL: &str = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$";

#[test]
fn the_schemas_are_those_of_cluster_api() {
    let assets = Assets::locate().unwrap();
    // `make support-matrix` runs the tests with other releases, whose definitions differ.
    if !assets.has_default_cluster_api().unwrap() {
        return;
    }
    let file = data();
    let derived = derived(&assets).unwrap();
    if env::var_os("UPDATE_OBJECT_SCHEMAS").is_some() {
        fs::write(&file, &derived).unwrap();
    }
    let checked_in = fs::read_to_string(&file).unwrap();
    let differing = derived
        .lines()
        .zip(checked_in.lines())
        .find(|(new, old)| new != old);
    assert!(
        derived == checked_in,
        "run `make object-schemas`; the first line that differs: {differing:?}"
    );
}

fn data() -> PathBuf {
    products::workspace().join("plugin/src/commands/lint/schema/cluster-api.json")
}

/// One line for each schema, first those that others share.
fn derived(assets: &Assets) -> Result<String> {
    let kinds = reduced_kinds(assets)?;
    let mut sharing = Sharing::default();
    for schema in kinds.values() {
        sharing.count(schema, "spec");
    }
    let kinds: Vec<_> = kinds
        .iter()
        .map(|(kind, schema)| format!("{}:{}", json!(kind), sharing.share(schema, "spec")))
        .collect();
    let mut shared = vec![format!("\"metadata\":{}", metadata())];
    shared.extend(
        sharing
            .definitions
            .iter()
            .map(|(name, schema)| format!("{}:{schema}", json!(name))),
    );
    Ok(format!(
        "{{\"definitions\":{{\n{}\n}},\"kinds\":{{\n{}\n}}}}\n",
        shared.join(",\n"),
        kinds.join(",\n")
    ))
}

/// What an API server requires of the metadata of each object, which no definition has.
fn metadata() -> Value {
    let map = |value: Value| json!({"type": "object", "additionalProperties": value});
    json!({
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": true,
        "properties": {
            "name": {"type": "string", "maxLength": 253, "pattern": DNS_SUBDOMAIN},
            "generateName": {"type": "string"},
            "namespace": {"type": "string", "maxLength": 63, "pattern": DNS_LABEL},
            "labels": map(json!({"type": "string", "maxLength": 63, "pattern": LABEL_VALUE})),
            "annotations": map(json!({"type": "string"})),
        },
    })
}

/// The schema of each kind in each served version, by `GROUP/VERSION/KIND`.
fn reduced_kinds(assets: &Assets) -> Result<BTreeMap<String, Value>> {
    let mut kinds = BTreeMap::new();
    for provider in PROVIDERS {
        for file in manifests::files(&assets.cluster_api(provider, "crd").join("bases"))? {
            for definition in manifests::read(&file)? {
                let spec = &definition["spec"];
                let kind = text(&spec["names"]["kind"])?;
                if !KINDS.contains(&kind) {
                    continue;
                }
                for version in spec["versions"].as_array().context("no versions")? {
                    if version["served"] == true {
                        let name = format!("{}/{}/{kind}", text(&spec["group"])?, text(&version["name"])?);
                        let schema = root(version).with_context(|| name.clone())?;
                        kinds.insert(name, schema);
                    }
                }
            }
        }
    }
    ensure!(kinds.len() == 2 * KINDS.len(), "{:?}", kinds.keys());
    Ok(kinds)
}

fn text(value: &Value) -> Result<&str> {
    value.as_str().context("not a string")
}

/// The schema of an object. `status` is left out, because an API server drops it from an object that a user writes.
fn root(version: &Value) -> Result<Value> {
    let mut reduced = reduce(&version["schema"]["openAPIV3Schema"], "")?;
    reduced["properties"]["metadata"] = json!({"$ref": "metadata"});
    reduced["properties"]["status"] = json!({"x-kubernetes-preserve-unknown-fields": true});
    // An API server requires this of every kind that can be scaled.
    if version["subresources"]["scale"]["specReplicasPath"] == ".spec.replicas" {
        reduced["properties"]["spec"]["properties"]["replicas"]["minimum"] = json!(0);
    }
    Ok(reduced)
}

fn reduce(schema: &Value, path: &str) -> Result<Value> {
    let mut reduced = Map::new();
    for (keyword, value) in schema
        .as_object()
        .with_context(|| format!("{path} is no object"))?
    {
        let keyword = keyword.as_str();
        let value = match keyword {
            "properties" => {
                let fields = value.as_object().context("properties")?.iter();
                let fields =
                    fields.map(|(name, field)| Ok((name.clone(), reduce(field, &format!("{path}.{name}"))?)));
                fields.collect::<Result<Map<_, _>>>().map(Value::Object)?
            }
            "items" | "additionalProperties" => reduce(value, path)?,
            "required" => required(schema),
            keyword if KEYWORDS.contains(&keyword) => value.clone(),
            keyword if LEFT_OUT.contains(&keyword) => continue,
            keyword => bail!("{path}: lint does not know {keyword}"),
        };
        let has_effect = match keyword {
            "minLength" => value != 0,
            "format" => value != "int32",
            "x-kubernetes-list-type" => value != "atomic",
            "required" => value != json!([]),
            _ => true,
        };
        if has_effect {
            reduced.insert(keyword.to_owned(), value);
        }
    }
    if is_duration(path) && reduced.get("type") == Some(&json!("string")) {
        reduced.insert("format".to_owned(), json!("duration"));
    }
    Ok(Value::Object(reduced))
}

/// Whether the last name in a path is that of a duration.
fn is_duration(path: &str) -> bool {
    DURATIONS.contains(&path.rsplit('.').next().unwrap_or_default())
}

/// The required fields without those that an API server sets.
fn required(schema: &Value) -> Value {
    let names = schema["required"].as_array().into_iter().flatten();
    let has_default = |name: &&Value| {
        let name = name.as_str().unwrap_or_default();
        !schema["properties"][name]["default"].is_null()
    };
    names.filter(|name| !has_default(name)).cloned().collect()
}

/// Replaces equal schemas by references to one definition, which has the name of the first field with this schema.
#[derive(Default)]
struct Sharing {
    uses: BTreeMap<String, usize>,
    names: BTreeMap<String, String>,
    definitions: BTreeMap<String, Value>,
}

impl Sharing {
    fn count(&mut self, schema: &Value, name: &str) {
        let uses = self.uses.entry(schema.to_string()).or_default();
        *uses += 1;
        if *uses == 1 {
            for (name, part) in parts(schema, name) {
                self.count(part, name);
            }
        }
    }

    fn share(&mut self, schema: &Value, name: &str) -> Value {
        let text = schema.to_string();
        if let Some(known) = self.names.get(&text) {
            return json!({"$ref": known});
        }
        let mut written = schema.clone();
        for keyword in ["items", "additionalProperties"] {
            if let Some(part) = schema.get(keyword) {
                written[keyword] = self.share(part, name);
            }
        }
        for (field, part) in schema["properties"].as_object().into_iter().flatten() {
            written["properties"][field] = self.share(part, field);
        }
        let is_shared = self.uses.get(&text).is_some_and(|uses| *uses > 1) && text.len() > MIN_SHARED_BYTES;
        if !is_shared {
            return written;
        }
        let number = (1..).map(|number| match number {
            1 => name.to_owned(),
            number => format!("{name}{number}"),
        });
        let mut unused = number.filter(|name| name != "metadata" && !self.definitions.contains_key(name));
        let chosen = unused.next().unwrap_or_default();
        self.definitions.insert(chosen.clone(), written);
        self.names.insert(text, chosen.clone());
        json!({"$ref": chosen})
    }
}

/// The schemas in a schema, each with the name of its field.
fn parts<'v>(schema: &'v Value, name: &'v str) -> Vec<(&'v str, &'v Value)> {
    let inner = ["items", "additionalProperties"].map(|keyword| schema.get(keyword).map(|part| (name, part)));
    let fields = schema["properties"].as_object().into_iter().flatten();
    let fields = fields.map(|(name, part)| (name.as_str(), part));
    inner.into_iter().flatten().chain(fields).collect()
}

/// The unit tests of `lint` compare its reader with the same table.
#[test]
fn kubectl_reads_scalars_as_the_table_says() {
    let table = fs::read_to_string(products::workspace().join("tests/fixtures/scalars.tsv")).unwrap();
    let rows: Vec<_> = table.lines().map(|row| row.split_once('\t').unwrap()).collect();
    let mut manifest = "apiVersion: example.com/v1\nkind: Scalars\nmetadata: {name: a}\nspec:\n".to_owned();
    for (index, (text, _)) in rows.iter().enumerate() {
        writeln!(manifest, "  s{index}: {text}").unwrap();
    }
    let mut kubectl = Command::new(Assets::locate().unwrap().program("kubectl"))
        .args(["annotate", "--local", "-o", "json", "a=b", "-f", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let input = kubectl.stdin.take().unwrap();
    BufWriter::new(input).write_all(manifest.as_bytes()).unwrap();
    let read = kubectl.wait_with_output().unwrap();
    let read: Value = serde_json::from_slice(&read.stdout).unwrap();
    for (index, (text, value)) in rows.iter().enumerate() {
        let value: Value = serde_json::from_str(value).unwrap();
        assert_eq!(read["spec"][format!("s{index}")], value, "{text}");
    }
}

/// In both directions: `lint` denies what an API server rejects, and says what it drops.
#[test]
#[ignore = "takes minutes: make test-long"]
fn lint_rejects_what_an_api_server_rejects() {
    with_management_cluster(async |management| {
        let (samples, expressions) = (samples().unwrap(), expressions().unwrap());
        let plurals: Vec<_> = samples.iter().map(|sample| plural(sample).unwrap()).collect();
        let plurals: Vec<_> = plurals.iter().map(String::as_str).collect();
        let api = management
            .another_with_definitions("object-schemas", &plurals)
            .await
            .unwrap();
        let (mut asked, mut differing) = (0, Vec::new());
        for object in samples.iter().flat_map(variants) {
            let server = ask_server(api.client(), &object).await.unwrap();
            differing.extend(difference(&object, &server, &expressions).unwrap());
            asked += 1;
        }
        println!("{asked} objects, {} with different answers", differing.len());
        assert!(asked > 1_000, "{asked}");
        assert!(differing.is_empty(), "{}", differing.join("\n\n"));
    });
}

/// The conversion to v1beta2 fails for a duration that Go cannot parse. The schema in v1beta1 accepts it.
#[test]
fn lint_rejects_durations_that_cluster_api_cannot_convert() {
    with_management_cluster(async |management| {
        let api = management.another_without_ours("durations").await.unwrap();
        let durations: Vec<_> = samples().unwrap().iter().flat_map(durations_of).collect();
        let fields: BTreeSet<_> = durations.iter().map(|(field, _)| field.as_str()).collect();
        assert_eq!(fields, BTreeSet::from(DURATIONS));
        for (value, is_rejected) in [
            ("90s", false),
            ("1h30m", false),
            ("0", false),
            ("1d", true),
            ("20", true),
            ("", true),
        ] {
            for (field, object) in &durations {
                let object = serde_json::from_str(&object.replace(PLACEHOLDER, value)).unwrap();
                let answer = ask_server(api.client(), &object).await.unwrap();
                let by_conversion = answer
                    .rejection
                    .filter(|message| message.contains("conversion webhook"));
                assert_eq!(
                    by_conversion.is_some(),
                    is_rejected,
                    "{field}: {value:?}: {by_conversion:?}"
                );
                assert_eq!(
                    denied(&object).unwrap().contains(field),
                    is_rejected,
                    "{field}: {value:?}"
                );
            }
        }
    });
}

const PLACEHOLDER: &str = "DURATION";

/// The object once for each of its durations, with a placeholder in this field.
fn durations_of(object: &Value) -> Vec<(String, String)> {
    let mut pointers = Vec::new();
    pointers_of(object, "", &mut pointers);
    let found = pointers.iter().filter_map(|pointer| {
        let field = pointer.rsplit('/').next()?;
        let mut changed = object.clone();
        let value = changed.pointer_mut(pointer).filter(|value| value.is_string())?;
        *value = json!(PLACEHOLDER);
        DURATIONS
            .contains(&field)
            .then(|| (field.to_owned(), changed.to_string()))
    });
    found.collect()
}

/// The last names of the fields that `lint` denies.
fn denied(object: &Value) -> Result<BTreeSet<String>> {
    let findings = findings(object)?;
    let denied = findings.iter().filter(|finding| finding["action"] == "deny");
    let names = denied.filter_map(|finding| Some(finding["field"].as_str()?.rsplit('.').next()?.to_owned()));
    Ok(names.collect())
}

/// What an API server says about an object.
struct Answer {
    /// The message of the rejection.
    rejection: Option<String>,
    /// The paths of the fields that it drops.
    dropped: BTreeSet<String>,
}

async fn ask_server(client: &Client, object: &Value) -> Result<Answer> {
    let uri = format!(
        "/apis/{}/namespaces/default/{}?dryRun=All&fieldValidation=Warn",
        text(&object["apiVersion"])?,
        plural(object)?
    );
    let request = http::Request::post(uri).header("Content-Type", "application/json");
    let response = client
        .send(request.body(Body::from(object.to_string().into_bytes()))?)
        .await?;
    let warnings = response.headers().get_all("warning").into_iter();
    let dropped = warnings.filter_map(|warning| {
        let text = warning.to_str().ok()?.replace("\\\"", "\"");
        let (_, rest) = text.split_once("unknown field \"")?;
        Some(rest.split_once('"')?.0.to_owned())
    });
    let dropped = dropped.collect();
    let is_rejected = !response.status().is_success();
    let body = response.into_body().collect().await?.to_bytes();
    let body: Value = serde_json::from_slice(&body)?;
    let rejection = is_rejected.then(|| body["message"].as_str().unwrap_or_default().to_owned());
    Ok(Answer { rejection, dropped })
}

/// What `lint` says about an object.
fn findings(object: &Value) -> Result<Vec<Value>> {
    let manifest = object.to_string();
    let report = lint::document(
        &[("object", manifest.as_bytes())],
        &[],
        &Configuration::default(),
        Timestamp::now(),
    )?;
    let mut report: Value = serde_json::from_str(&report)?;
    let findings = report["findings"].as_array_mut().context("findings")?;
    Ok(findings.split_off(0))
}

/// How the answer of `lint` differs from that of the API server.
fn difference(object: &Value, server: &Answer, expressions: &BTreeSet<String>) -> Result<Option<String>> {
    let findings = findings(object)?;
    let fields_of = |is_meant: &dyn Fn(&Value) -> bool| {
        let meant = findings.iter().filter(|finding| is_meant(finding));
        let fields = meant.map(|finding| text(&finding["field"]).map(as_server_writes));
        fields.collect::<Result<BTreeSet<_>>>()
    };
    let of_rule = |finding: &Value, rule: &str| finding["rule"] == rule;
    let is_denial = |finding: &Value| finding["action"] == "deny";
    // `lint` takes an object that lacks most of its spec for a patch of Kustomize, and does not check it.
    if findings
        .iter()
        .any(|finding| of_rule(finding, "manifest-unrendered"))
    {
        return Ok(None);
    }
    let denied = fields_of(&is_denial)?;
    // `object-undecodable` is what a webhook says.
    // Without Cluster API's conversion, an API server accepts any string as a duration.
    let rejected = fields_of(&|finding| {
        is_denial(finding)
            && (of_rule(finding, "field-invalid") || of_rule(finding, "field-moved"))
            && !finding["field"].as_str().is_some_and(is_duration)
    })?;
    let moved = fields_of(&|finding| of_rule(finding, "field-moved"))?;
    let unknown = fields_of(&|finding| of_rule(finding, "field-unknown"))?;
    // A rule may say more about a rejected value than its schema.
    let agrees = match &server.rejection {
        Some(message) => {
            !denied.is_empty() || expressions.iter().any(|expression| message.contains(expression))
        }
        None => rejected.is_empty(),
    };
    let is_explained = |path: &&String| {
        moved.iter().any(|field| field.starts_with(path.as_str()))
            || denied.iter().any(|field| path.starts_with(field.as_str()))
    };
    let mut unnamed = server
        .dropped
        .difference(&unknown)
        .filter(|path| !is_explained(path));
    let mut invented = unknown.difference(&server.dropped);
    let Answer { rejection, dropped } = server;
    Ok((!agrees || unnamed.next().is_some() || invented.next().is_some())
        .then(|| format!("{object}\nthe server: {rejection:?}, drops {dropped:?}; lint: {findings:?}")))
}

/// A path with `.` before the key of a map, in place of brackets.
fn as_server_writes(path: &str) -> String {
    let mut steps = path.split('[');
    let mut written = steps.next().unwrap_or_default().to_owned();
    for step in steps {
        match step.strip_suffix(']') {
            Some(key) if !key.starts_with(|c: char| c.is_ascii_digit()) => written.extend([".", key]),
            _ => written.extend(["[", step]),
        }
    }
    written
}

/// The messages of the expressions in the definitions, which `lint` does not evaluate.
fn expressions() -> Result<BTreeSet<String>> {
    let mut found = BTreeSet::new();
    let assets = Assets::locate()?;
    for provider in PROVIDERS {
        for file in manifests::files(&assets.cluster_api(provider, "crd").join("bases"))? {
            for definition in manifests::read(&file)? {
                add_expressions(&definition, &mut found);
            }
        }
    }
    Ok(found)
}

fn add_expressions(value: &Value, found: &mut BTreeSet<String>) {
    let rules = value.get("x-kubernetes-validations").and_then(Value::as_array);
    let messages = rules
        .into_iter()
        .flatten()
        .filter_map(|rule| rule["message"].as_str());
    found.extend(messages.map(str::to_owned));
    let fields = value.as_object().into_iter().flat_map(Map::values);
    for part in fields.chain(value.as_array().into_iter().flatten()) {
        add_expressions(part, found);
    }
}

/// Fields that are times. An API server accepts a list in such a field, and only Cluster API's webhook rejects it.
const TIMES: [&str; 4] = ["after", "expires", "rolloutAfter", "timeAdded"];

/// The object itself, and the object with each of its fields removed, and with other values in it.
fn variants(object: &Value) -> Vec<Value> {
    let mut pointers = Vec::new();
    pointers_of(object, "", &mut pointers);
    let values = [
        json!(null),
        json!(""),
        json!("A b"),
        json!("1"),
        json!(-1),
        json!(1.5),
        json!(true),
        json!([]),
        json!({}),
        json!({"foo": 1}),
        json!(["a", "a"]),
    ];
    let mut variants = vec![object.clone()];
    for pointer in pointers {
        let is_time = TIMES.iter().any(|time| pointer.ends_with(&format!("/{time}")));
        for value in values.iter().filter(|value| !(is_time && value.is_array())) {
            let mut variant = object.clone();
            if let Some(field) = variant.pointer_mut(&pointer) {
                *field = value.clone();
            }
            variants.push(variant);
        }
        let mut variant = object.clone();
        if let Some((parent, name)) = pointer.rsplit_once('/')
            && let Some(Value::Object(fields)) = variant.pointer_mut(parent)
        {
            fields.remove(name);
            variants.push(variant);
        }
    }
    variants
}

/// The JSON pointers of the parts that the schemas describe.
fn pointers_of(value: &Value, pointer: &str, found: &mut Vec<String>) {
    let parts: Vec<(String, &Value)> = match value {
        Value::Object(fields) => fields
            .iter()
            .map(|(name, part)| (name.replace('/', "~1"), part))
            .collect(),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .map(|(index, part)| (index.to_string(), part))
            .collect(),
        _ => Vec::new(),
    };
    for (name, part) in parts {
        let pointer = format!("{pointer}/{name}");
        if !["/apiVersion", "/kind", "/metadata"].contains(&pointer.as_str()) {
            found.push(pointer.clone());
        }
        pointers_of(part, &pointer, found);
    }
}

/// Objects of all kinds. `lint` has no reason to deny one of them.
fn samples() -> Result<Vec<Value>> {
    let fixtures = products::workspace().join("tests/fixtures");
    let mut v1beta1 = manifests::read(&fixtures.join("every-field-v1beta1.yaml"))?.swap_remove(0);
    // A rule denies it, because a feature gate is off.
    v1beta1["spec"]["machineTemplate"]["taints"].take();
    let mut samples = manifests::read(&fixtures.join("cluster-api-objects.yaml"))?;
    samples.push(v1beta1);
    Ok(samples)
}

fn plural(object: &Value) -> Result<String> {
    Ok(format!("{}s", text(&object["kind"])?.to_lowercase()))
}
