//! Reads a workload cluster's objects, with limits on time, response size and list length.

use std::{fmt::Debug, future::Future, pin::Pin, time::Duration};

use k8s_openapi::{List, ListableResource};
use kube::{
    Resource,
    api::{GetParams, ListParams},
    core::{ApiResource, Request},
};
use serde::de::DeserializeOwned;

use crate::{Action, Connection, Error, ReadLimit, request::decode_response, workload::ResponseLimit};

/// The number of objects on a page of a list, as in kubectl.
const OBJECTS_PER_PAGE: u32 = 500;

/// The maximum number of pages of a list. It allows twice as many nodes as Kubernetes supports.
const MAX_PAGES: usize = 20;

/// The maximum size of a page: twice the size of 500 nodes that list 50 images each, the kubelet's default.
const MAX_PAGE_SIZE: ResponseLimit = ResponseLimit::mebibytes(32);

type ReadFuture<'r, T> = Pin<Box<dyn Future<Output = Result<T, Error>> + 'r>>;

/// Reads the objects of a workload cluster.
///
/// Each read first asks for data that a quorum of etcd confirms. If that fails or takes too long, the read is repeated
/// from the API server's watch cache, which works without quorum but may be stale.
#[derive(Clone)]
pub struct Objects {
    cluster: Connection,
    limit: Duration,
}

impl Objects {
    /// Reads from `cluster`. `limit` is the time limit of each read.
    pub const fn new(cluster: Connection, limit: Duration) -> Self {
        Self { cluster, limit }
    }

    /// Lists the objects of one or all namespaces that match the selectors of `filter`. `keep` converts each object, or
    /// drops it.
    pub async fn list<K, T>(
        &self,
        namespace: Option<&str>,
        filter: &ListParams,
        keep: impl Fn(K) -> Option<T>,
    ) -> Result<Vec<T>, Error>
    where
        K: Resource<DynamicType = ()> + ListableResource + DeserializeOwned + Clone + Debug,
    {
        self.list_in_pages_of(OBJECTS_PER_PAGE, namespace, filter, keep)
            .await
    }

    /// Like [`Objects::list`], but with another number of objects on each page, for objects that are large.
    pub async fn list_in_pages_of<K, T>(
        &self,
        page_size: u32,
        namespace: Option<&str>,
        filter: &ListParams,
        keep: impl Fn(K) -> Option<T>,
    ) -> Result<Vec<T>, Error>
    where
        K: Resource<DynamicType = ()> + ListableResource + DeserializeOwned + Clone + Debug,
    {
        let mut action = Action::new("list", &ApiResource::erase::<K>(&()));
        action.namespace = namespace.map(str::to_owned);
        let requests = Request::new(K::url_path(&(), namespace));
        let consistent = async {
            let mut parameters = filter.clone().limit(page_size);
            let mut objects = Vec::new();
            for _ in 0..MAX_PAGES {
                let page: List<K> = self.page(&action, &requests, &parameters).await?;
                objects.extend(page.items.into_iter().filter_map(&keep));
                match page.metadata.continue_.filter(|next| !next.is_empty()) {
                    Some(next) => parameters.continue_token = Some(next),
                    None => return Ok(objects),
                }
            }
            Err(Error::Other {
                action: action.clone(),
                cause: format!(
                    "the list has more than {} objects",
                    MAX_PAGES * page_size as usize
                ),
            })
        };
        let cached = async {
            let page: List<K> = self.page(&action, &requests, &filter.clone().match_any()).await?;
            Ok(page.items.into_iter().filter_map(&keep).collect())
        };
        self.consistent_or_cached(&action, Box::pin(consistent), Box::pin(cached))
            .await
    }

    /// Reads one object. `None` if the object does not exist.
    pub async fn get<K>(&self, namespace: &str, name: &str) -> Result<Option<K>, Error>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned,
    {
        self.get_as::<K, K>(namespace, name).await
    }

    /// Like [`Objects::get`], but decodes only the part `T` of the object, such as a Secret without its private key.
    pub async fn get_as<K, T>(&self, namespace: &str, name: &str) -> Result<Option<T>, Error>
    where
        K: Resource<DynamicType = ()>,
        T: DeserializeOwned,
    {
        let action = Action::new("get", &ApiResource::erase::<K>(&()))
            .in_namespace(namespace)
            .with_name(name);
        let requests = Request::new(K::url_path(&(), Some(namespace)));
        let text = self.text_of(&action, &requests, name).await?;
        text.map(|text| decode_response(&action, &text)).transpose()
    }

    /// Reads the JSON of one object. `None` if the object does not exist.
    async fn text_of(
        &self,
        action: &Action,
        requests: &Request,
        name: &str,
    ) -> Result<Option<String>, Error> {
        let get = |parameters: GetParams| async move {
            let build = || requests.get(name, &parameters);
            match self.cluster.read_text(action, &build).await {
                Ok(text) => Ok(Some(text)),
                Err(Error::NotFound { .. }) => Ok(None),
                Err(error) => Err(error),
            }
        };
        let (consistent, cached) = (get(GetParams::default()), get(GetParams::any()));
        self.consistent_or_cached(action, Box::pin(consistent), Box::pin(cached))
            .await
    }

    async fn page<T: DeserializeOwned>(
        &self,
        action: &Action,
        requests: &Request,
        parameters: &ListParams,
    ) -> Result<T, Error> {
        let build = || {
            let mut request = requests.list(parameters)?;
            request.extensions_mut().insert(MAX_PAGE_SIZE);
            Ok(request)
        };
        decode_response(action, &self.cluster.read_text(action, &build).await?)
    }

    async fn consistent_or_cached<T>(
        &self,
        action: &Action,
        consistent: ReadFuture<'_, T>,
        cached: ReadFuture<'_, T>,
    ) -> Result<T, Error> {
        let limit = ReadLimit::per_read(self.limit / 2);
        match self.cluster.run_with_limit(limit, action, consistent).await {
            Err(
                error @ (Error::OutOfTime { .. }
                | Error::Timeout { .. }
                | Error::Busy { .. }
                | Error::Response { code: 500.., .. }),
            ) => self
                .cluster
                .run_with_limit(limit, action, cached)
                .await
                .map_err(|_| error),
            outcome => outcome,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future::{pending, ready},
        sync::atomic::{AtomicUsize, Ordering},
        time::Duration,
    };

    use k8s_openapi::api::core::v1::{ConfigMap, Node};
    use kcp_api::kind::MACHINE;
    use serde_json::{Value, json};

    use super::{Error, ListParams, Objects};
    use crate::{Action, Connection, testing::failure};

    /// Reads objects from a server that gives these responses one after the other, and then repeats the last one.
    fn objects(answers: Vec<(u16, Value)>) -> Objects {
        let asked = AtomicUsize::new(0);
        let connection = Connection::canned(move |_, _| {
            let index = asked.fetch_add(1, Ordering::Relaxed).min(answers.len() - 1);
            answers[index].clone()
        });
        Objects::new(connection, Duration::from_secs(10))
    }

    async fn names(objects: &Objects) -> Result<Vec<String>, Error> {
        objects
            .list(None, &ListParams::default(), |node: Node| node.metadata.name)
            .await
    }

    fn page(name: &str, next: &str) -> (u16, Value) {
        let page = json!({
            "kind": "NodeList", "apiVersion": "v1", "metadata": {"continue": next},
            "items": [{"metadata": {"name": name}}],
        });
        (200, page)
    }

    fn lost_quorum() -> (u16, Value) {
        failure(500, "InternalError", "etcdserver: request timed out")
    }

    #[tokio::test]
    async fn reads_all_pages_up_to_a_limit() {
        let whole = objects(vec![page("n1", "more"), page("n2", "")]);
        assert_eq!(names(&whole).await.expect("a list"), ["n1", "n2"]);
        let endless = objects(vec![page("n1", "more")]);
        assert_eq!(
            names(&endless).await.expect_err("endless").to_string(),
            "cannot list nodes in all namespaces: the list has more than 10000 objects"
        );
    }

    #[tokio::test]
    async fn what_the_server_remembers_does_without_quorum() {
        let remembering = objects(vec![lost_quorum(), page("n1", "")]);
        assert_eq!(names(&remembering).await.expect("a list"), ["n1"]);
        let object = json!({"metadata": {"name": "c"}});
        let remembering = objects(vec![lost_quorum(), (200, object)]);
        let read: Option<ConfigMap> = remembering.get("kube-system", "c").await.expect("an object");
        assert_eq!(read.expect("it is there").metadata.name.as_deref(), Some("c"));
        // The error is that of the first response.
        let broken = objects(vec![lost_quorum(), failure(401, "Unauthorized", "Unauthorized")]);
        assert_eq!(
            names(&broken).await.expect_err("broken").to_string(),
            "cannot list nodes in all namespaces: the server responded with 500: etcdserver: request timed out"
        );
    }

    #[tokio::test]
    async fn what_the_server_remembers_is_asked_when_an_agreement_takes_too_long() {
        let objects = Objects::new(
            Connection::canned(|_, _| page("n1", "")),
            Duration::from_millis(40),
        );
        let action = Action::new("list", &MACHINE.api_resource("v1"));
        let never = Box::pin(pending());
        let read = objects.consistent_or_cached(&action, never, Box::pin(ready(Ok("n1"))));
        assert_eq!(read.await.expect("cached"), "n1");
    }

    #[tokio::test]
    async fn a_refusal_is_not_asked_again() {
        let forbidden = objects(vec![failure(403, "Forbidden", ""), page("n1", "")]);
        assert!(matches!(names(&forbidden).await, Err(Error::Forbidden { .. })));
    }
}
