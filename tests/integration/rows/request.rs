//! A request to an API server, with warnings, dry runs and impersonation, which clients hide.

use anyhow::{Context as _, Result};
use http::Method;
use kube::Client;
use kube::client::Body;
use serde_json::Value;

use super::answer::Answered;

#[derive(Clone, Copy, Debug)]
pub(super) enum Verb {
    Get,
    Create,
    Replace,
    /// A server-side apply that takes fields from other managers.
    Apply,
    Delete,
}

#[derive(Debug)]
pub(super) struct Request<'r> {
    verb: Verb,
    path: &'r str,
    body: Value,
    by: Option<&'r str>,
    query: Vec<String>,
}

impl<'r> Request<'r> {
    pub(super) fn new(verb: Verb, path: &'r str) -> Self {
        // An unknown field causes a warning instead of an error, which would hide the answer of admission.
        let query = vec!["fieldValidation=Warn".to_owned()];
        Self {
            verb,
            path,
            body: Value::Null,
            by: None,
            query,
        }
    }

    pub(super) fn body(mut self, body: Value) -> Self {
        self.body = body;
        self
    }

    /// Impersonates another user with all permissions.
    pub(super) fn by(mut self, user: &'r str) -> Self {
        self.by = Some(user);
        self
    }

    pub(super) fn dry_run(mut self) -> Self {
        self.query.push("dryRun=All".to_owned());
        self
    }

    pub(super) fn field_manager(mut self, manager: &str) -> Self {
        self.query.push(format!("fieldManager={manager}"));
        self
    }

    pub(super) async fn send(self, client: &Client) -> Result<Answered> {
        let method = match self.verb {
            Verb::Get => Method::GET,
            Verb::Create => Method::POST,
            Verb::Replace => Method::PUT,
            Verb::Apply => Method::PATCH,
            Verb::Delete => Method::DELETE,
        };
        let (content, force) = match self.verb {
            Verb::Apply => ("application/apply-patch+yaml", "&force=true"),
            _ => ("application/json", ""),
        };
        let mut request = http::Request::builder()
            .method(method)
            .uri(format!("{}?{}{force}", self.path, self.query.join("&")))
            .header("content-type", content)
            .header("accept", "application/json");
        if let Some(user) = self.by {
            request = request
                .header("impersonate-user", user)
                .header("impersonate-group", "system:masters");
        }
        let body = if self.body.is_null() {
            Vec::new()
        } else {
            serde_json::to_vec(&self.body)?
        };
        let response = client.send(request.body(Body::from(body))?).await?;
        let (head, body) = response.into_parts();
        let warnings = head.headers.get_all("warning").iter();
        let warnings = warnings.map(|value| unquoted(&String::from_utf8_lossy(value.as_bytes())));
        let warnings = warnings.collect();
        let body = body.collect_bytes().await?;
        Ok(Answered {
            code: head.status.as_u16(),
            body: serde_json::from_slice(&body)
                .with_context(|| String::from_utf8_lossy(&body).into_owned())?,
            warnings,
        })
    }
}

/// The text of a `Warning` header (RFC 7234, section 5.5): `299 - "text"`.
fn unquoted(header: &str) -> String {
    let quoted = header.split_once('"').map_or(header, |(_, rest)| rest);
    let text = quoted.strip_suffix('"').unwrap_or(quoted);
    text.replace("\\\"", "\"").replace("\\\\", "\\")
}

/// The path of the object's collection.
pub(super) fn path_of(object: &Value) -> Result<String> {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
    if text("/kind") == Some("Namespace") {
        return Ok("/api/v1/namespaces".to_owned());
    }
    let (version, kind) = (
        text("/apiVersion").context("no apiVersion")?,
        text("/kind").context("no kind")?,
    );
    let namespace = text("/metadata/namespace").context("no namespace")?;
    let plural = format!("{}s", kind.to_lowercase());
    Ok(format!("/apis/{version}/namespaces/{namespace}/{plural}"))
}
