//! Sends requests for objects: reads into compact types, and writes as JSON merge patches.

use http::Request as HttpRequest;
use kcp_api::{DecodeError, List, Undecodable, decode, decode_each, decode_list};
use kcp_rules::syntax::is_dns1123_subdomain;
use kube::{
    Resource as _,
    api::{DynamicObject, GetParams, ListParams, Patch, PatchParams, PostParams, ValidationDirective},
    core::{ApiResource, Request},
};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{
    Action, Connection, Error,
    written::{Written, classify_write},
};

/// The number of objects on a page of a list, as in kubectl.
const OBJECTS_PER_PAGE: u32 = 500;

#[derive(Clone, Debug)]
pub struct PatchRequest<'w> {
    pub resource: &'w ApiResource,
    /// The namespace of the object. `None` for a cluster-scoped kind.
    pub namespace: Option<&'w str>,
    pub name: &'w str,
    /// The subresource to patch. `None` for the object itself.
    pub subresource: Option<&'w str>,
    /// A JSON merge patch (RFC 7386). If it contains `metadata.resourceVersion` and the object has changed since, the
    /// server rejects the patch (409).
    pub patch: &'w Value,
    pub field_manager: &'w str,
    /// Whether the server only checks the patch and does not store it.
    pub dry_run: bool,
}

impl PatchRequest<'_> {
    fn parameters(&self) -> PatchParams {
        PatchParams {
            dry_run: self.dry_run,
            field_manager: Some(self.field_manager.to_owned()),
            // Without this, the server silently drops unknown fields.
            field_validation: Some(ValidationDirective::Strict),
            ..PatchParams::default()
        }
    }
}

/// A request for a response in JSON, or why its URL is invalid.
pub(crate) type BuiltRequest = Result<HttpRequest<Vec<u8>>, kube::core::request::Error>;

type PageRequest = fn(&Request, &ListParams) -> BuiltRequest;

/// A list that is read page by page. The API server sorts the objects by namespace, then by name.
pub struct Pages<'c> {
    connection: &'c Connection,
    action: Action,
    requests: Request,
    request: PageRequest,
    parameters: ListParams,
    is_complete: bool,
}

impl Pages<'_> {
    pub const fn action(&self) -> &Action {
        &self.action
    }

    /// Whether the last page has been read.
    pub const fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Reads the next page of the list. `None` after the last page.
    pub async fn next<T: DeserializeOwned>(&mut self) -> Result<Option<Vec<T>>, Error> {
        self.next_decoded_by(decode_list).await
    }

    /// Like [`Self::next`], but if a field of an object has the wrong type, still returns the other objects.
    pub async fn next_each<T: DeserializeOwned>(
        &mut self,
    ) -> Result<Option<Vec<Result<T, Box<Undecodable>>>>, Error> {
        self.next_decoded_by(decode_each).await
    }

    async fn next_decoded_by<T>(
        &mut self,
        decode: fn(&str) -> Result<List<T>, DecodeError>,
    ) -> Result<Option<Vec<T>>, Error> {
        if self.is_complete {
            return Ok(None);
        }
        let text = self
            .connection
            .read_text(&self.action, &|| (self.request)(&self.requests, &self.parameters))
            .await?;
        let List { items, metadata } =
            decode(&text).map_err(|source| Error::malformed(self.action.clone(), source))?;
        let next = metadata.continue_.filter(|next| !next.is_empty());
        self.is_complete = next.is_none();
        self.parameters.continue_token = next;
        Ok(Some(items))
    }

    async fn all<T: DeserializeOwned>(&mut self) -> Result<Vec<T>, Error> {
        let mut items = Vec::new();
        while let Some(page) = self.next().await? {
            items.extend(page);
        }
        Ok(items)
    }
}

impl Connection {
    /// Sends a read request like [`Connection::read`], and returns the JSON of the response. `build` builds the request of each
    /// attempt. Not generic over the kind, because the code of a request takes a long time to compile.
    pub(crate) async fn read_text(
        &self,
        action: &Action,
        build: &(dyn Fn() -> BuiltRequest + Sync),
    ) -> Result<String, Error> {
        self.read(action, || async {
            let request = build().map_err(kube::Error::BuildRequest)?;
            self.client.request_text(request).await
        })
        .await
    }

    /// Reads one object and returns its JSON.
    pub async fn get_text(
        &self,
        resource: &ApiResource,
        namespace: &str,
        name: &str,
    ) -> Result<String, Error> {
        self.get_text_in(resource, Some(namespace), name).await
    }

    /// Like [`Connection::get_text`]. `namespace` is none for a cluster-scoped kind.
    pub async fn get_text_in(
        &self,
        resource: &ApiResource,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<String, Error> {
        let action = Action::new("get", resource).within(namespace).with_name(name);
        check_safe_in_url(&action)?;
        let requests = Request::new(DynamicObject::url_path(resource, namespace));
        self.read_text(&action, &|| requests.get(name, &GetParams::default()))
            .await
    }

    /// Reads and decodes one object.
    pub async fn get<T: DeserializeOwned>(
        &self,
        resource: &ApiResource,
        namespace: &str,
        name: &str,
    ) -> Result<T, Error> {
        let text = self.get_text(resource, namespace, name).await?;
        decode(&text).map_err(|source| {
            Error::malformed(
                Action::new("get", resource)
                    .in_namespace(namespace)
                    .with_name(name),
                source,
            )
        })
    }

    /// Reads only an object's metadata.
    pub async fn get_metadata<T: DeserializeOwned>(
        &self,
        resource: &ApiResource,
        namespace: &str,
        name: &str,
    ) -> Result<T, Error> {
        let action = Action::new("get", resource)
            .in_namespace(namespace)
            .with_name(name);
        check_safe_in_url(&action)?;
        let requests = Request::new(DynamicObject::url_path(resource, Some(namespace)));
        let text = self
            .read_text(&action, &|| requests.get_metadata(name, &GetParams::default()))
            .await?;
        decode_response(&action, &text)
    }

    /// Lists the objects of one or all namespaces that match a label selector, page by page.
    pub async fn list<T: DeserializeOwned>(
        &self,
        resource: &ApiResource,
        namespace: Option<&str>,
        selector: Option<&str>,
    ) -> Result<Vec<T>, Error> {
        self.pages(resource, namespace, selector).all().await
    }

    /// Lists the objects of a namespace that match a field selector, page by page.
    pub async fn list_by_fields<T: DeserializeOwned>(
        &self,
        resource: &ApiResource,
        namespace: &str,
        selector: &str,
    ) -> Result<Vec<T>, Error> {
        let mut pages = self.pages(resource, Some(namespace), None);
        pages.parameters.field_selector = Some(selector.to_owned());
        pages.all().await
    }

    /// Lists the objects of all namespaces that match a field selector, page by page.
    pub async fn list_all_by_fields<T: DeserializeOwned>(
        &self,
        resource: &ApiResource,
        selector: &str,
    ) -> Result<Vec<T>, Error> {
        let mut pages = self.pages(resource, None, None);
        pages.parameters.field_selector = Some(selector.to_owned());
        pages.all().await
    }

    /// Like [`Connection::list`], but reads only metadata.
    pub async fn list_metadata<T: DeserializeOwned>(
        &self,
        resource: &ApiResource,
        namespace: Option<&str>,
        selector: Option<&str>,
    ) -> Result<Vec<T>, Error> {
        self.metadata_pages(resource, namespace, selector).all().await
    }

    /// Like [`Connection::pages`], but reads only metadata.
    pub fn metadata_pages(
        &self,
        resource: &ApiResource,
        namespace: Option<&str>,
        selector: Option<&str>,
    ) -> Pages<'_> {
        let mut pages = self.pages(resource, namespace, selector);
        pages.request = Request::list_metadata;
        pages
    }

    /// Like [`Connection::list`], but the caller reads one page after the other.
    pub fn pages(
        &self,
        resource: &ApiResource,
        namespace: Option<&str>,
        selector: Option<&str>,
    ) -> Pages<'_> {
        let mut action = Action::new("list", resource);
        action.namespace = namespace.map(str::to_owned);
        let mut parameters = ListParams::default().limit(OBJECTS_PER_PAGE);
        parameters.label_selector = selector.map(str::to_owned);
        Pages {
            connection: self,
            action,
            requests: Request::new(DynamicObject::url_path(resource, namespace)),
            request: Request::list,
            parameters,
            is_complete: false,
        }
    }

    /// Patches one object. Never retries the request: [`crate::update`] decides whether to try again. If it fails, nothing is
    /// stored: the request fails as in [`Connection::call`], admission or validation rejects the patch ([`Error::Rejected`]), or
    /// the server does not know a field ([`Error::UnknownField`]).
    pub async fn patch(&self, write: &PatchRequest<'_>) -> Result<Written, Error> {
        let PatchRequest {
            resource,
            namespace,
            name,
            ..
        } = *write;
        let mut action = Action::new("patch", resource).within(namespace).with_name(name);
        check_safe_in_url(&action)?;
        let parameters = write.parameters();
        let requests = Request::new(DynamicObject::url_path(resource, namespace));
        let patch = Patch::Merge(write.patch);
        let request = match write.subresource {
            Some(subresource) => {
                action = action.subresource(subresource);
                requests.patch_subresource(subresource, name, &parameters, &patch)
            }
            None => requests.patch(name, &parameters, &patch),
        };
        let answer = self.call(&action, async {
            self.client
                .request::<Value>(request.map_err(kube::Error::BuildRequest)?)
                .await
        });
        classify_write(answer.await, write.dry_run)
    }
}

impl Connection {
    /// Creates one object. `namespace` is none for a cluster-scoped kind. Like [`Connection::patch`], never retries the
    /// request.
    pub async fn create<T: DeserializeOwned>(
        &self,
        resource: &ApiResource,
        namespace: Option<&str>,
        object: &Value,
        field_manager: &str,
    ) -> Result<T, Error> {
        let parameters = PostParams {
            field_manager: Some(field_manager.to_owned()),
            ..PostParams::default()
        };
        self.create_with(resource, namespace, object, &parameters).await
    }

    pub(crate) async fn create_with<T: DeserializeOwned>(
        &self,
        resource: &ApiResource,
        namespace: Option<&str>,
        object: &Value,
        parameters: &PostParams,
    ) -> Result<T, Error> {
        let mut action = Action::new("create", resource);
        action.namespace = namespace.map(str::to_owned);
        check_safe_in_url(&action)?;
        let requests = Request::new(DynamicObject::url_path(resource, namespace));
        let request = requests.create(parameters, object.to_string().into_bytes());
        let answer = self.call(&action, async {
            let request = request.map_err(kube::Error::BuildRequest)?;
            self.client.request_text(request).await
        });
        decode_response(&action, &answer.await?)
    }
}

/// Decodes the response to `action`.
pub(crate) fn decode_response<T: DeserializeOwned>(action: &Action, text: &str) -> Result<T, Error> {
    serde_json::from_str(text).map_err(|source| Error::malformed(action.clone(), source.into()))
}

/// Rejects names that are unsafe in a URL. If the name comes from a field of another object, no server has
/// validated it, and `..` would change the path of the request.
pub(crate) fn check_safe_in_url(action: &Action) -> Result<(), Error> {
    let mut names = action.namespace.iter().chain(&action.name);
    match names.find(|name| !is_dns1123_subdomain(name.as_bytes())) {
        None => Ok(()),
        Some(name) => Err(Error::Other {
            cause: format!("{name:?} is not a valid object name"),
            action: action.clone(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use kcp_api::kind::CLUSTER;
    use kube::api::ValidationDirective;
    use serde_json::json;

    use super::{PatchRequest, check_safe_in_url};
    use crate::Action;

    #[test]
    fn no_field_of_a_patch_is_dropped() {
        let patch = json!({"spec": {"paused": true}});
        let write = PatchRequest {
            resource: &CLUSTER.api_resource("v1beta2"),
            namespace: Some("d"),
            name: "c1",
            subresource: None,
            patch: &patch,
            field_manager: "kubectl-kcp",
            dry_run: true,
        };
        let parameters = write.parameters();
        assert!(matches!(
            parameters.field_validation,
            Some(ValidationDirective::Strict)
        ));
        assert_eq!(parameters.field_manager.as_deref(), Some("kubectl-kcp"));
        assert!(parameters.dry_run);
    }

    #[test]
    fn no_name_leads_to_another_path() {
        let get = |namespace: &str, name: &str| {
            let action = Action::new("get", &CLUSTER.api_resource("v1beta2"));
            check_safe_in_url(&action.in_namespace(namespace).with_name(name))
                .map_err(|error| error.to_string())
        };
        assert_eq!(get("team-a", "c.1"), Ok(()));
        assert_eq!(
            get("team-a", "../../secrets/x"),
            Err("cannot get clusters \"../../secrets/x\" in namespace \"team-a\": \"../../secrets/x\" is not a valid \
                 object name".to_owned())
        );
        assert!(get("..", "c1").is_err());
    }
}
