//! The port [`StorageObjects`] on a real client: one request per question, in this node's name.
//! What the node may read only because a pod names it is asked for [`patiently`].

use ferrolet_ports::{
    ApiError, CertificateAsk, Fut, ObjectChange, RequestedCertificate, StorageObjects, TrustAsk,
};
use k8s_openapi::api::{
    certificates::v1::{ClusterTrustBundle, PodCertificateRequest},
    core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Secret},
    storage::v1::{CSIDriver, CSINode, VolumeAttachment},
};
use serde_json::Value;
use tokio::sync::broadcast;

use crate::{
    client::{Client, PatchKind, Place, Selector},
    early::patiently,
    pod_certificates,
    trust::TrustNews,
};

/// Storage objects of the API.
pub struct ApiStorage {
    client: Client,
    node_name: String,
    trust: Option<TrustNews>,
}

impl ApiStorage {
    /// For this node.
    pub fn new(client: Client, node_name: String) -> Self {
        Self { client, node_name, trust: None }
    }

    /// The same, and changes of trust bundles are told there once one has been asked for.
    pub fn announcing(self, changes: broadcast::Sender<ObjectChange>) -> Self {
        Self { trust: Some(TrustNews::new(changes)), ..self }
    }
}

impl StorageObjects for ApiStorage {
    fn get_claim<'a>(
        &'a self,
        namespace: &'a str,
        name: &'a str,
    ) -> Fut<'a, Result<PersistentVolumeClaim, ApiError>> {
        let place = Place::one::<PersistentVolumeClaim>(Some(namespace), name);
        Box::pin(async move { patiently(|| self.client.get(&place)).await })
    }

    fn get_volume<'a>(&'a self, name: &'a str) -> Fut<'a, Result<PersistentVolume, ApiError>> {
        let place = Place::one::<PersistentVolume>(None, name);
        Box::pin(async move { patiently(|| self.client.get(&place)).await })
    }

    fn patch_claim_status<'a>(
        &'a self,
        namespace: &'a str,
        name: &'a str,
        patch: &'a Value,
    ) -> Fut<'a, Result<PersistentVolumeClaim, ApiError>> {
        let place = Place::one::<PersistentVolumeClaim>(Some(namespace), name).under("status");
        Box::pin(async move {
            let kind = PatchKind::StrategicMerge;
            self.client.patch(&place, kind, patch).await
        })
    }

    fn get_driver<'a>(&'a self, name: &'a str) -> Fut<'a, Result<CSIDriver, ApiError>> {
        let place = Place::one::<CSIDriver>(None, name);
        Box::pin(async move { self.client.get(&place).await })
    }

    fn get_attachment<'a>(&'a self, name: &'a str) -> Fut<'a, Result<VolumeAttachment, ApiError>> {
        let place = Place::one::<VolumeAttachment>(None, name);
        Box::pin(async move { patiently(|| self.client.get(&place)).await })
    }

    fn get_own_node(&self) -> Fut<'_, Result<Node, ApiError>> {
        let place = Place::one::<Node>(None, &self.node_name);
        Box::pin(async move { self.client.get(&place).await })
    }

    fn get_volume_secret<'a>(
        &'a self,
        namespace: &'a str,
        name: &'a str,
    ) -> Fut<'a, Result<Secret, ApiError>> {
        let place = Place::one::<Secret>(Some(namespace), name);
        Box::pin(async move { patiently(|| self.client.get(&place)).await })
    }

    fn get_trust_bundles<'a>(
        &'a self,
        ask: &'a TrustAsk,
    ) -> Fut<'a, Result<Vec<String>, ApiError>> {
        Box::pin(async move {
            // Before the answer, so that no change falls between the two.
            if let Some(news) = &self.trust {
                news.begin(&self.client);
            }
            let bundles: Vec<ClusterTrustBundle> = match ask {
                TrustAsk::Name(name) => {
                    let place = Place::one::<ClusterTrustBundle>(None, name);
                    vec![self.client.get(&place).await?]
                }
                TrustAsk::Signer { labels: None, .. } => Vec::new(),
                TrustAsk::Signer { signer, labels } => {
                    let place = Place::all::<ClusterTrustBundle>(None);
                    let selector = Selector {
                        fields: Some(format!("spec.signerName={signer}")),
                        labels: labels.clone().filter(|it| !it.is_empty()),
                    };
                    // The latest: what the watch told of must be in it.
                    let list = self.client.list(&place, &selector, "").await?;
                    list.objects
                }
            };
            let texts = bundles.into_iter().map(|it| it.spec.trust_bundle);
            Ok(texts.collect())
        })
    }

    fn request_certificate<'a>(
        &'a self,
        ask: &'a CertificateAsk,
    ) -> Fut<'a, Result<RequestedCertificate, ApiError>> {
        Box::pin(pod_certificates::request(&self.client, &self.node_name, ask))
    }

    fn get_certificate_request<'a>(
        &'a self,
        namespace: &'a str,
        name: &'a str,
    ) -> Fut<'a, Result<PodCertificateRequest, ApiError>> {
        let place = Place::one::<PodCertificateRequest>(Some(namespace), name);
        Box::pin(async move { self.client.get(&place).await })
    }

    fn get_csi_node(&self) -> Fut<'_, Result<CSINode, ApiError>> {
        let place = Place::one::<CSINode>(None, &self.node_name);
        Box::pin(async move { self.client.get(&place).await })
    }

    fn create_csi_node<'a>(&'a self, node: &'a CSINode) -> Fut<'a, Result<CSINode, ApiError>> {
        let place = Place::all::<CSINode>(None);
        Box::pin(async move { self.client.create(&place, node).await })
    }

    fn replace_csi_node<'a>(&'a self, node: &'a CSINode) -> Fut<'a, Result<CSINode, ApiError>> {
        let place = Place::one::<CSINode>(None, &self.node_name);
        Box::pin(async move { self.client.replace(&place, node).await })
    }

    fn replace_csi_node_status<'a>(
        &'a self,
        node: &'a CSINode,
    ) -> Fut<'a, Result<CSINode, ApiError>> {
        let place = Place::one::<CSINode>(None, &self.node_name).under("status");
        Box::pin(async move { self.client.replace(&place, node).await })
    }
}

#[cfg(test)]
mod tests {
    use ferrolet_ports::ObjectKind;
    use serde_json::json;

    use super::*;
    use crate::fake::FakeApi;

    #[tokio::test(start_paused = true)]
    async fn claims_volumes_and_drivers_are_asked_for_one_by_one() {
        let fake = FakeApi::new();
        let storage = ApiStorage::new(fake.client(), "me".to_owned());
        assert!(storage.get_claim("n", "c").await.unwrap_err().is_not_found());
        assert!(storage.get_volume("v").await.unwrap_err().is_not_found());
        assert!(storage.get_driver("d").await.unwrap_err().is_not_found());
        assert!(storage.get_attachment("a").await.unwrap_err().is_not_found());
        assert!(storage.get_csi_node().await.unwrap_err().is_not_found());
        let node = CSINode::default();
        storage.replace_csi_node_status(&node).await.unwrap_err();
        let expected = [
            "GET /api/v1/namespaces/n/persistentvolumeclaims/c",
            "GET /api/v1/persistentvolumes/v",
            "GET /apis/storage.k8s.io/v1/csidrivers/d",
            "GET /apis/storage.k8s.io/v1/volumeattachments/a",
            "GET /apis/storage.k8s.io/v1/csinodes/me",
            "PUT /apis/storage.k8s.io/v1/csinodes/me/status",
        ];
        assert_eq!(fake.lines(), expected);
    }

    #[tokio::test(start_paused = true)]
    async fn trust_bundles_are_followed_from_the_first_question_on() {
        let fake = FakeApi::new();
        let (changes, mut news) = broadcast::channel(8);
        let storage = ApiStorage::new(fake.client(), "me".to_owned()).announcing(changes);
        storage.get_csi_node().await.unwrap_err();
        assert_eq!(fake.lines().len(), 1, "nobody asked for a bundle");
        let ask = TrustAsk::Name("b".to_owned());
        let absent = storage.get_trust_bundles(&ask).await.unwrap_err();
        assert!(absent.is_not_found());
        let is_bundle = |change: ObjectChange| change.kind == ObjectKind::TrustBundle;
        assert!(is_bundle(news.recv().await.unwrap()));
        let path = "/apis/certificates.k8s.io/v1/clustertrustbundles/b";
        fake.until("watching", |fake| fake.lines().iter().any(|line| line.contains("watch=1")))
            .await;
        fake.put(
            path,
            json!({"kind": "ClusterTrustBundle", "apiVersion": "certificates.k8s.io/v1",
                "metadata": {"name": "b"}, "spec": {"trustBundle": "text"}}),
        );
        assert!(is_bundle(news.recv().await.unwrap()));
        let found = storage.get_trust_bundles(&ask).await.unwrap();
        assert_eq!(found, ["text"]);
        let is_watch = |line: &&String| line.contains("watch=1");
        assert_eq!(fake.lines().iter().filter(is_watch).count(), 1);
    }
}
