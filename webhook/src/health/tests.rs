use super::*;
use crate::testing::{api_server, phase, read};

fn health(phase_now: Phase, has_api_access: bool) -> Health {
    let metrics = Arc::new(Metrics::new());
    let client =
        has_api_access.then(|| api_server(|path| async move { panic!("unexpected request for {path}") }));
    Health {
        cluster: ClusterReader::new(client, metrics.clone()),
        configuration: Arc::new(CurrentConfiguration::without_file(metrics.clone())),
        metrics,
        phase: phase(phase_now),
        pools_counted: RateLimit::default(),
    }
}

async fn get(phase_now: Phase, has_api_access: bool, path: &str) -> (u16, String) {
    let health = health(phase_now, has_api_access);
    let (code, text) = read(health.answer(&Request::get(path).body(()).unwrap())).await;
    (code.as_u16(), text)
}

#[tokio::test]
async fn answers_probes_by_phase() {
    const NOT_READY: &str = "[+]key-pair ok\n[+]listener ok\n[-]serving failed\nreadyz check failed\n";
    for (phase_now, path, code, text) in [
        (Phase::Serving, "/livez", 200, "ok"),
        (Phase::Serving, "/readyz", 200, "ok"),
        (Phase::Serving, "/readyz?timeout=1s", 200, "ok"),
        (Phase::Draining, "/livez", 200, "ok"),
        (Phase::Draining, "/readyz", 503, NOT_READY),
        (Phase::Closing, "/readyz", 503, NOT_READY),
        (
            Phase::Serving,
            "/healthz",
            404,
            "not found; this port serves /livez, /readyz and /metrics\n",
        ),
    ] {
        assert_eq!(
            get(phase_now, false, path).await,
            (code, text.to_owned()),
            "{phase_now:?} {path}"
        );
    }
}

#[tokio::test]
async fn is_ready_without_api_access_and_reports_it() {
    assert_eq!(
        get(Phase::Serving, false, "/readyz?verbose").await,
        (
            200,
            "[+]key-pair ok\n[+]listener ok\n[+]serving ok\n[i]api-access none: kcp-webhook refuses writes \
             to the scale subresource\nreadyz check passed\n"
                .to_owned()
        )
    );
    assert_eq!(
        get(Phase::Draining, true, "/readyz?a=b&verbose=true").await,
        (
            503,
            "[+]key-pair ok\n[+]listener ok\n[-]serving failed\n[i]api-access configured\n\
             [i]cache/kubeadmcontrolplanes not synced: starting\n[i]cache/clusters not synced: starting\n\
             [i]cache/clusterpools not synced: starting\n\
             [i]cache/clusterdeploymentcustomizations not synced: starting\n[i]cache/clusterdeployments not synced: starting\nreadyz check failed\n"
                .to_owned()
        )
    );
}

#[tokio::test]
async fn metrics_end_with_eof() {
    let (code, text) = get(Phase::Serving, false, "/metrics").await;
    assert_eq!(code, 200);
    assert!(text.ends_with("# EOF\n"), "{text}");
}

#[tokio::test]
async fn rejects_post() {
    let health = health(Phase::Serving, false);
    let response = health.answer(&Request::post("/livez").body(()).unwrap());
    assert_eq!(response.headers()[header::ALLOW], "GET, HEAD");
    assert_eq!(
        read(response).await,
        (StatusCode::METHOD_NOT_ALLOWED, "use GET\n".to_owned())
    );
}
