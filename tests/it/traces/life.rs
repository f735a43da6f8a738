//! Traces of a running process: reloads, what `/status`, `ctl`, the log and the metrics show, the end, an upgrade.

use super::{PARENT, TRACE};
use crate::support::{
    chromium::Browser,
    collector::{Collector, Manner},
    prelude::*,
    tls::credulous,
};
use serde_json::Value as Json;

/// A litequic before an origin, as a process.
struct Running {
    folder: tempfile::TempDir,
    process: Process,
    admin: SocketAddr,
    tcp: SocketAddr,
    base: String,
}

impl Running {
    fn start(origin: SocketAddr, traces: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let made = make_self_signed(["localhost"]).unwrap();
        write_certificate(folder.path(), &made);
        let local = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let (admin, tcp, udp) = (local(free_tcp_port()), local(free_tcp_port()), local(free_udp_port()));
        let base = format!(
            "{}log.format = \"json\"\nlisten.udp = \"{udp}\"\nlisten.tcp = \"{tcp}\"\nlisten.workers = 1\n\
             admin.listen = \"{admin}\"\nreload.on_change = \"none\"\ntrusted_proxies = [\"127.0.0.0/8\"]\n\
             [[certificates]]\ncert = \"tls.crt\"\nkey = \"tls.key\"\n[origin]\nurl = \"http://{origin}\"\n\
             [access_log]\npath = \"access.log\"\nfields = [\"trace_id\", \"span_id\", \"request_id\"]\n",
            io_key()
        );
        let file = folder.path().join("litequic.toml");
        fs::write(&file, format!("{base}{traces}")).unwrap();
        let process = Process::start(["run", "--config", file.to_str().unwrap()]);
        process.address();
        Self { folder, process, admin, tcp, base }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a configuration with other `traces`, and has it applied.
    async fn reload(&self, traces: &str) {
        fs::write(self.file("litequic.toml"), format!("{}{traces}", self.base)).unwrap();
        let answer = self.ctl(&["reload"]).await;
        assert!(answer.contains("traces."), "{answer}");
        // `ctl` prints what the log has.
        assert!(!answer.contains("secret"), "{answer}");
    }

    /// What `litequic ctl` prints.
    async fn ctl(&self, arguments: &[&str]) -> String {
        let admin = self.admin.to_string();
        let arguments: Vec<_> = [arguments, &["--admin", &admin]].concat().into_iter().map(str::to_owned).collect();
        spawn_blocking(move || Process::spawn(command([vec!["ctl".to_owned()], arguments].concat())).end().success())
            .await
            .unwrap()
    }

    async fn status(&self) -> Json {
        serde_json::from_str(&self.ctl(&["status", "--json"]).await).unwrap()
    }

    /// A request, with a trace of a client that is trusted.
    async fn get(&self) {
        let mut tls = Tls::connect(self.tcp, "localhost", credulous(&["http/1.1"])).await.unwrap();
        let request = format!(
            "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\ntraceparent: 00-{TRACE}-{PARENT}-01\r\n\r\n"
        );
        tls.say(request).await;
        let (answer, _) = tls.rest().await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
}

#[tokio::test]
async fn a_reload_switches_traces_on_moves_them_and_switches_them_off() {
    let (first, second) = (Collector::http().await, Collector::grpc().await);
    let origin = Always::new(Always::EMPTY_200).await;
    let running = Running::start(origin.address, "");
    running.get().await;
    let client = format!("traceparent: 00-{TRACE}-{PARENT}-01");
    assert_eq!(origin.seen().matches(&client).count(), 1, "{}", origin.seen());
    running.reload(&format!("[traces]\nendpoint = \"{}\"\nheaders = {{ x-token = \"secret\" }}\n", first.url())).await;
    running.get().await;
    first.spans(2).await;
    assert!(running.ctl(&["config"]).await.contains("x-token"));
    running.reload(&format!("[traces]\nendpoint = \"{}\"\n", second.url())).await;
    running.get().await;
    second.spans(2).await;
    assert_eq!(first.all().len(), 2);
    running.reload("").await;
    running.get().await;
    assert_eq!(origin.seen().matches(&client).count(), 2, "{}", origin.seen());
    assert_eq!(running.status().await["traces"], Json::Null);
    spawn_blocking(|| running.process.end_by("TERM").success()).await.unwrap();
    assert_eq!(second.all().len(), 2);
}

#[tokio::test]
async fn a_failing_collector_is_logged_once_and_shown_in_the_status() {
    let collector = Collector::start(
        false,
        vec![
            Manner::Say(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n".to_vec()),
            Manner::Say(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n".to_vec()),
        ],
    )
    .await;
    let origin = Always::new(Always::EMPTY_200).await;
    let running = Running::start(origin.address, &format!("[traces]\nendpoint = \"{}\"\n", collector.url()));
    assert!(running.ctl(&["status"]).await.contains(&format!("traces to {}: none accepted yet", collector.url())));
    running.get().await;
    collector.asked(1).await;
    until("a problem in the status", async || {
        running.status().await["traces"]["problem"] == "answered 503 Service Unavailable"
    })
    .await;
    let screen = running.ctl(&["status"]).await;
    assert!(screen.contains("failing, none accepted yet"), "{screen}");
    assert!(screen.contains("! the collector of traces does not accept spans: answered 503"), "{screen}");
    collector.spans(2).await;
    until("a time in the status", async || running.status().await["traces"]["accepted_at"] != Json::Null).await;
    assert_eq!(running.status().await["traces"]["problem"], Json::Null);
    running.process.await_stderr("the collector accepts spans again");
    let log = running.process.stderr();
    let lines = |what: &str| log.matches(what).count();
    assert_eq!((lines("cannot export spans"), lines("accepts spans again")), (1, 1), "{log}");
    spawn_blocking(|| running.process.end_by("TERM").success()).await.unwrap();
}

#[tokio::test]
async fn log_metric_and_trace_of_a_request_have_one_number() {
    let collector = Collector::http().await;
    let origin = Always::new(Always::EMPTY_200).await;
    let traces = format!("[traces]\nendpoint = \"{}\"\nratio = 1\nparent = \"none\"\n", collector.url());
    let running = Running::start(origin.address, &traces);
    running.get().await;
    let spans = collector.spans(2).await;
    let span = spans.iter().find(|span| span.is_server).unwrap();
    assert_eq!(span.links, [TRACE]);
    let logged = async {
        loop {
            let text = fs::read_to_string(running.file("access.log")).unwrap_or_default();
            if let Some(line) = text.lines().next() {
                return serde_json::from_str::<Json>(line).unwrap();
            }
            sleep(LOOK_AGAIN).await;
        }
    };
    let line = within("a line of the access log", logged).await;
    assert_eq!((&line["trace_id"], &line["span_id"]), (&span.trace_id.clone().into(), &span.span_id.clone().into()));
    assert_eq!(line["request_id"], line["trace_id"]);
    let metrics = running.ctl(&["metrics"]).await;
    let exemplar = format!(" # {{trace_id=\"{}\",span_id=\"{}\"}} ", span.trace_id, span.span_id);
    let named: Vec<_> = metrics.lines().filter(|line| line.contains(&exemplar)).collect();
    let [named] = named[..] else { panic!("{exemplar} once in {metrics}") };
    assert!(named.starts_with("litequic_request_duration_seconds_bucket{le="), "{named}");
    // The value is in its bucket.
    let (bucket, value) = named.split_once(&exemplar).unwrap();
    let bound: f64 = bucket.split('"').nth(1).unwrap().parse().unwrap_or(f64::MAX);
    assert!(value.split(' ').next().unwrap().parse::<f64>().unwrap() <= bound, "{named}");
    let of_origin = metrics.lines().filter(|line| line.starts_with("litequic_origin_duration_seconds_bucket"));
    assert_eq!(of_origin.filter(|line| line.contains(&span.trace_id)).count(), 1);
    spawn_blocking(|| running.process.end_by("TERM").success()).await.unwrap();
}

#[tokio::test]
async fn the_status_page_shows_where_spans_go_and_whether_they_are_accepted() {
    let busy = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n";
    let collector = Collector::start(false, vec![Manner::Say(busy.to_vec()); 3]).await;
    let Some(mut browser) = spawn_blocking(|| Browser::start(&[])).await.unwrap() else { return };
    let origin = Always::new(Always::EMPTY_200).await;
    let running = Running::start(origin.address, &format!("[traces]\nendpoint = \"{}\"\n", collector.url()));
    running.get().await;
    let (page, url) = (format!("http://{}/", running.admin), collector.url());
    let see = move || {
        browser.open(&page);
        for text in [
            format!("Traces to {url}: failing, none accepted yet. The last problem: answered 503 Service Unavailable."),
            format!("Traces to {url}: accepted 20"),
        ] {
            browser.wait_for(&format!("document.getElementById('traces').innerText.startsWith({text:?})"));
        }
    };
    spawn_blocking(see).await.unwrap();
    spawn_blocking(|| running.process.end_by("TERM").success()).await.unwrap();
}
