//! The fields of a CRD as lines with path, type and constraints, in the format of `tests/fixtures/fields`.

use std::collections::BTreeMap;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSON, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use serde_json::Value;

/// The fields of one kind.
#[derive(Debug, Default)]
pub(crate) struct Fields {
    /// The names, the scope and the subresources of the kind.
    pub(crate) header: Vec<String>,
    /// Printer columns, `Name: jsonPath`.
    pub(crate) columns: Vec<String>,
    /// Type and constraints of each field by path. `[]` is an element of a list, `{}` a value of a map.
    pub(crate) by_path: BTreeMap<String, String>,
    /// Paths below which unknown fields are preserved.
    pub(crate) open: Vec<String>,
}

impl Fields {
    /// Parses a fixture.
    pub(crate) fn parse(text: &str) -> Self {
        let mut parsed = Self::default();
        for line in text.lines() {
            if let Some(column) = line.strip_prefix("# column ") {
                parsed.columns.push(column.to_owned());
            } else if let Some(comment) = line.strip_prefix("# ") {
                if !comment.starts_with("path,") {
                    parsed.header.push(comment.to_owned());
                }
            } else {
                let (path, rest) = line.split_once('\t').unwrap();
                parsed.by_path.insert(path.to_owned(), rest.to_owned());
            }
        }
        parsed
    }

    /// Describes a CRD with one version.
    pub(crate) fn of(definition: &CustomResourceDefinition) -> Self {
        let spec = &definition.spec;
        let [version] = spec.versions.as_slice() else {
            panic!("one version")
        };
        let short_names = spec.names.short_names.clone().unwrap_or_default().join(",");
        let mut described = Self {
            header: vec![
                format!(
                    "{}/{} {} ({}; short {short_names}; {})",
                    spec.group, version.name, spec.names.kind, spec.names.plural, spec.scope
                ),
                format!(
                    "served={} storage={} subresources={}",
                    python(&Value::Bool(version.served)),
                    python(&Value::Bool(version.storage)),
                    python(&serde_json::to_value(&version.subresources).unwrap())
                ),
            ],
            columns: version
                .additional_printer_columns
                .iter()
                .flatten()
                .map(|column| format!("{}: {}", column.name, column.json_path))
                .collect(),
            ..Self::default()
        };
        let root = version
            .schema
            .as_ref()
            .unwrap()
            .open_api_v3_schema
            .as_ref()
            .unwrap();
        described.describe_fields("", root);
        described
    }

    /// Whether unknown fields at this path are preserved.
    pub(crate) fn preserves(&self, path: &str) -> bool {
        self.open.iter().any(|open| {
            path.strip_prefix(open.as_str())
                .is_some_and(|rest| rest.starts_with(['.', '[', '{']))
        })
    }

    fn describe(&mut self, path: &str, schema: &JSONSchemaProps, required: bool) {
        let kind = match &schema.type_ {
            Some(kind) => kind.as_str(),
            None if schema.x_kubernetes_int_or_string == Some(true) => "int-or-string",
            None => "any",
        };
        let mut line = kind.to_owned();
        let constraints = constraints(schema, required);
        if !constraints.is_empty() {
            line = format!("{line}\t{}", constraints.join("; "));
        }
        self.by_path.insert(path.to_owned(), line);
        if schema.x_kubernetes_preserve_unknown_fields == Some(true) {
            self.open.push(path.to_owned());
        }
        self.describe_fields(&format!("{path}."), schema);
        match &schema.items {
            Some(JSONSchemaPropsOrArray::Schema(item)) => self.describe(&format!("{path}[]"), item, false),
            Some(JSONSchemaPropsOrArray::Schemas(_)) => {
                panic!("{path}: a list with a schema for each element")
            }
            None => {}
        }
        if let Some(JSONSchemaPropsOrBool::Schema(value)) = &schema.additional_properties {
            self.describe(&format!("{path}{{}}"), value, false);
        }
    }

    fn describe_fields(&mut self, prefix: &str, schema: &JSONSchemaProps) {
        for (name, field) in schema.properties.iter().flatten() {
            let required = schema.required.iter().flatten().any(|required| required == name);
            self.describe(&format!("{prefix}{name}"), field, required);
        }
    }
}

/// The constraints in the order of the fixtures. Constraints that no fixture has are included too, so that they show up
/// as differences.
fn constraints(schema: &JSONSchemaProps, required: bool) -> Vec<String> {
    let mut found = Vec::new();
    let mut add = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            found.push(format!("{name}={value}"));
        }
    };
    let values = |values: &Vec<JSON>| {
        python(&Value::Array(
            values.iter().map(|JSON(value)| value.clone()).collect(),
        ))
    };
    add("enum", schema.enum_.as_ref().map(values));
    add("minItems", schema.min_items.map(|limit| limit.to_string()));
    add("maxItems", schema.max_items.map(|limit| limit.to_string()));
    add("minimum", schema.minimum.map(|limit| limit.to_string()));
    add("maximum", schema.maximum.map(|limit| limit.to_string()));
    add("minLength", schema.min_length.map(|limit| limit.to_string()));
    add("maxLength", schema.max_length.map(|limit| limit.to_string()));
    add("pattern", schema.pattern.clone());
    add("format", schema.format.clone());
    add(
        "default",
        schema
            .default
            .as_ref()
            .map(|JSON(value)| value.as_str().map_or_else(|| python(value), str::to_owned)),
    );
    add("list-type", schema.x_kubernetes_list_type.clone());
    add(
        "keys",
        schema
            .x_kubernetes_list_map_keys
            .as_ref()
            .map(|keys| keys.join(",")),
    );
    add("nullable", schema.nullable.map(|nullable| nullable.to_string()));
    add(
        "additionalProperties",
        match &schema.additional_properties {
            Some(JSONSchemaPropsOrBool::Bool(allowed)) => Some(allowed.to_string()),
            _ => None,
        },
    );
    for (name, alternatives) in [
        ("anyOf", &schema.any_of),
        ("oneOf", &schema.one_of),
        ("allOf", &schema.all_of),
    ] {
        add(
            name,
            alternatives
                .as_ref()
                .map(|schemas| format!("{} schemas", schemas.len())),
        );
    }
    if required {
        found.insert(0, "required".to_owned());
    }
    found
}

/// JSON in the notation of Python, because a Python script wrote the fixtures.
fn python(value: &Value) -> String {
    match value {
        Value::Null => "None".to_owned(),
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        Value::Number(number) => number.to_string(),
        Value::String(text) => format!("'{text}'"),
        Value::Array(values) => format!("[{}]", values.iter().map(python).collect::<Vec<_>>().join(", ")),
        Value::Object(map) => {
            let entries: Vec<_> = map
                .iter()
                .map(|(key, value)| format!("'{key}': {}", python(value)))
                .collect();
            format!("{{{}}}", entries.join(", "))
        }
    }
}
