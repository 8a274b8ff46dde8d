//! Lists that are read page by page, and whose objects the caller takes one namespace at a time.

use std::collections::{BTreeMap, VecDeque};

use kcp_api::{Kind, Object, Undecodable, kind::CLUSTER, names::label};
use kcp_control_plane::snapshot::Failure;
use kube::core::ApiResource;
use serde::de::DeserializeOwned;

use crate::{Action, Connection, Error, ReadLimit, reader::Reader, reads::failure, request::Pages};

pub(super) struct Lists<'r> {
    pub(super) reader: &'r Reader<'r>,
    pub(super) namespace: Option<&'r str>,
    pub(super) limit: ReadLimit,
}

impl<'r> Lists<'r> {
    pub(super) fn sorted_list<T>(
        &self,
        resource: Result<ApiResource, Error>,
        selector: Option<&str>,
    ) -> SortedList<'r, T> {
        let connection = self.reader.connection;
        let (pages, failure) = match resource {
            Ok(resource) => (Some(connection.pages(&resource, self.namespace, selector)), None),
            Err(error) => (None, Some(error)),
        };
        SortedList {
            connection,
            pages,
            limit: self.limit,
            waiting: VecDeque::new(),
            last_namespace: String::new(),
            failure,
            order_error: None,
        }
    }
}

/// A list that is read page by page, and whose objects the caller takes one namespace at a time.
pub(super) struct SortedList<'r, T> {
    connection: &'r Connection,
    /// `None` if the server does not serve the kind.
    pages: Option<Pages<'r>>,
    limit: ReadLimit,
    /// The objects that have been read, but not yet taken.
    waiting: VecDeque<Listed<T>>,
    /// The last namespace on the pages that have been read.
    last_namespace: String,
    /// Why the list is incomplete.
    pub(super) failure: Option<Error>,
    /// Set if the pages are not sorted. Objects of namespaces that the caller has already taken may then be
    /// missing.
    pub(super) order_error: Option<Error>,
}

impl<T: Object + DeserializeOwned> SortedList<'_, T> {
    /// Reads pages until an object is waiting, unless the list is complete or a read fails.
    pub(super) async fn fill(&mut self) {
        while self.waiting.is_empty() && self.failure.is_none() && self.order_error.is_none() {
            match self.next_page().await {
                Ok(Some(page)) => self.waiting.extend(page),
                Ok(None) => return,
                Err(error) => self.failure = Some(error),
            }
        }
    }

    async fn next_page(&mut self) -> Result<Option<Vec<Listed<T>>>, Error> {
        let Some(pages) = &mut self.pages else {
            return Ok(None);
        };
        let action = pages.action().clone();
        let read = self
            .connection
            .run_with_limit(self.limit, &action, pages.next_each());
        let Some(mut page): Option<Vec<Listed<T>>> = read.await? else {
            return Ok(None);
        };
        page.sort_by(|a, b| namespace_of(a).cmp(namespace_of(b)));
        if page
            .first()
            .is_some_and(|first| *namespace_of(first) < *self.last_namespace)
        {
            let cause = "the API server did not sort the pages of the list by namespace".to_owned();
            self.order_error = Some(Error::Other { action, cause });
            return Ok(None);
        }
        if let Some(last) = page.last() {
            namespace_of(last).clone_into(&mut self.last_namespace);
        }
        Ok(Some(page))
    }

    /// The namespace of the first waiting object.
    pub(super) fn next_namespace(&self) -> Option<&str> {
        self.waiting.front().map(namespace_of)
    }

    /// Takes the objects of a namespace, and drops those of earlier namespaces.
    pub(super) async fn take(&mut self, namespace: &str) -> Vec<Listed<T>> {
        let mut taken = Vec::new();
        loop {
            self.fill().await;
            match self.next_namespace() {
                Some(next) if next <= namespace => taken.extend(self.waiting.pop_front()),
                _ => break,
            }
        }
        taken.retain(|object| namespace_of(object) == namespace);
        taken
    }

    /// The action that reads the list. `resource` is the resource to name if the server does not serve the kind.
    pub(super) fn action(&self, resource: &ApiResource) -> Action {
        let pages = self.pages.as_ref();
        pages.map_or_else(|| Action::new("list", resource), |pages| pages.action().clone())
    }

    /// Takes the objects of a namespace, grouped by the name of their Cluster.
    pub(super) async fn take_by_cluster(
        &mut self,
        kind: &Kind,
        namespace: &str,
        cluster: impl Fn(&T) -> Option<String>,
    ) -> ByCluster<T> {
        let mut by_cluster = ByCluster::default();
        for object in self.take(namespace).await {
            match object {
                Ok(object) => {
                    if let Some(cluster) = cluster(&object) {
                        by_cluster.objects.entry(cluster).or_default().push(object);
                    }
                }
                Err(object) => {
                    let cluster = cluster_of(kind, &object);
                    let Some(pages) = &self.pages else { continue };
                    let error = Error::malformed(pages.action().clone(), object.error);
                    by_cluster.unread.push((cluster, failure::of_kind(kind, &error)));
                }
            }
        }
        if let Some(error) = &self.failure {
            by_cluster.unread.push((None, failure::of_kind(kind, error)));
        }
        by_cluster
    }
}

/// An object of a list.
type Listed<T> = Result<T, Box<Undecodable>>;

fn namespace_of<T: Object>(listed: &Listed<T>) -> &str {
    match listed {
        Ok(object) => object.namespace(),
        Err(object) => &object.namespace,
    }
}

/// The Cluster of an object that cannot be decoded; none if it may belong to any Cluster of its namespace.
fn cluster_of(kind: &Kind, object: &Undecodable) -> Option<String> {
    if kind.kind == CLUSTER.kind {
        return Some(object.name.clone());
    }
    let name = object.cluster_name.as_ref()?;
    let label = object.labels.get(label::CLUSTER_NAME);
    label.is_none_or(|label| label == name).then(|| name.clone())
}

/// Objects of one namespace by the name of their Cluster.
pub(super) struct ByCluster<T> {
    objects: BTreeMap<String, Vec<T>>,
    /// Why objects of a Cluster, or of all Clusters, are unknown.
    unread: Vec<(Option<String>, Failure)>,
}

impl<T> Default for ByCluster<T> {
    fn default() -> Self {
        Self {
            objects: BTreeMap::new(),
            unread: Vec::new(),
        }
    }
}

impl<T> ByCluster<T> {
    /// The objects of a Cluster; none if it has no objects.
    pub(super) fn of_cluster(&mut self, name: &str) -> Result<Option<&mut Vec<T>>, Box<Failure>> {
        let mut unread = self.unread.iter();
        let unread = unread.find(|(cluster, _)| cluster.as_ref().is_none_or(|cluster| cluster == name));
        match unread {
            Some((_, failure)) => Err(Box::new(failure.clone())),
            None => Ok(self.objects.get_mut(name)),
        }
    }
}
