//! The real process with its files before nginx: what each wrong certificate leads to, and what a renewed file does.

use super::{Folder, nginx, server};
use crate::{
    client_certificates::person::{Authority, DAY, Person},
    drain::ask,
    support::{nginx::Nginx, prelude::*},
};
use std::{
    fmt::Write as _,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    time::SystemTime,
};

/// litequic with a configuration in `folder`.
struct Running {
    process: Process,
    udp: SocketAddr,
    admin: SocketAddr,
    made: SelfSigned,
}

fn text(udp: SocketAddr, admin: SocketAddr, origins: &str) -> String {
    format!(
        "listen.udp = \"{udp}\"\nadmin.listen = \"{admin}\"\nlog.level = \"debug\"\n{origins}\n\
         [[certificates]]\ncert = \"tls.crt\"\nkey = \"tls.key\"\n"
    )
}

impl Running {
    /// With `origins` in its configuration.
    async fn start(folder: &Folder, origins: &str) -> Self {
        let made = make_self_signed(["localhost"]).unwrap();
        folder.put("tls.crt", &made.cert_pem);
        folder.put("tls.key", &made.key_pem);
        let udp = SocketAddr::from((Ipv4Addr::LOCALHOST, free_udp_port()));
        let admin = SocketAddr::from((Ipv4Addr::LOCALHOST, free_tcp_port()));
        let file = folder.put("litequic.toml", &text(udp, admin, origins));
        let process = Process::start(["run".as_ref(), "--config".as_ref(), file.as_os_str()]);
        assert_eq!(process.address(), udp);
        Self { process, udp, admin, made }
    }

    async fn client(&self) -> Client {
        Person::new(&self.made.cert_pem, None).connect(self.udp, "localhost").await
    }

    async fn status(&self) -> serde_json::Value {
        serde_json::from_str(&ask(self.admin, "GET /status").await.1).unwrap()
    }

    /// Renewals of files of TLS to origins, by the log.
    fn renewals(&self) -> usize {
        self.process.stderr().matches("\"key\":\"origin.tls\"").count()
    }

    async fn metric(&self, name: &str) -> u64 {
        let text = ask(self.admin, "GET /metrics").await.1;
        let samples = text.lines().filter_map(|line| line.strip_prefix(name));
        samples.filter_map(|rest| rest.split(' ').next_back()?.parse::<u64>().ok()).sum()
    }
}

#[tokio::test]
async fn each_rejected_client_certificate_is_logged_and_counted() {
    let folder = Folder::new();
    let (authority, other, unlisted) = (Authority::new("root"), Authority::new("other"), Authority::new("unlisted"));
    folder.put("ca.pem", &(authority.pem() + &unlisted.pem()));
    folder.put("ca.crl", &authority.crl(&[7]));
    let now = SystemTime::now();
    let issued = [
        ("good", server(&authority, |_| {}), ""),
        ("expired", server(&authority, |one| one.not_after = (now - DAY).into()), "expired: it was valid until "),
        ("early", server(&authority, |one| one.not_before = (now + DAY).into()), "not yet valid: it is valid from "),
        (
            "named",
            server(&authority, |one| {
                one.subject_alt_names.remove(0);
            }),
            "wrong name: the certificate is for origin.test",
        ),
        ("foreign", server(&other, |_| {}), "unknown issuer: \\\"CN=other\\\" is not among the trusted certificates"),
        ("revoked", server(&authority, |one| one.serial_number = Some(7.into())), "revoked: "),
        ("unknown", server(&unlisted, |_| {}), "revocation unknown: there is no certificate revocation list"),
    ];
    let mut blocks = String::new();
    let mut origins = String::new();
    let mut add = |name: &str, port: u16, tls: &str| {
        let _ = write!(
            origins,
            "[origins.{name}]\nurl = \"https://127.0.0.1:{port}\"\n[origins.{name}.tls]\nca = \"ca.pem\"\n{tls}\n\
             [[routes]]\npath = \"/{name}\"\norigin = \"{name}\"\n"
        );
    };
    for (name, shown, _) in &issued {
        let (cert, key) = folder.put_pair(name, shown);
        let port = free_tcp_port();
        let _ = write!(
            blocks,
            "}}\nserver {{\nlisten 127.0.0.1:{port} ssl;\nssl_protocols TLSv1.3;\nssl_certificate {};\nssl_certificate_key {};\nreturn 200 ok;\n",
            cert.display(),
            key.display()
        );
        add(name, port, "crl = \"ca.crl\"");
    }
    // Only TLS 1.2; and no TLS.
    let (cert, key) = (folder.path("good.crt"), folder.path("good.key"));
    let old = free_tcp_port();
    let _ = write!(
        blocks,
        "}}\nserver {{\nlisten 127.0.0.1:{old} ssl;\nssl_protocols TLSv1.2;\nssl_certificate {};\nssl_certificate_key {};\n\
         return 200 ok;\n",
        cert.display(),
        key.display()
    );
    add("old", old, "");
    let plain = free_tcp_port();
    let _ = write!(blocks, "}}\nserver {{\nlisten 127.0.0.1:{plain};\nreturn 200 ok;\n");
    add("plain", plain, "");
    let Some(_nginx) = Nginx::start(&blocks) else { return };
    let running = Running::start(&folder, &origins).await;
    running.process.await_stderr("there is no certificate revocation list of \\\"CN=unlisted\\\"");
    let client = running.client().await;
    let others = [
        ("old", "tls_alert_received", "alert", "it does not support TLS 1.3"),
        ("plain", "tls_protocol_error", "protocol", "is not TLS"),
    ];
    let of_certificates =
        issued.iter().map(|(name, _, reason)| (*name, "tls_certificate_error", "certificate", *reason));
    for (name, error, counter, reason) in of_certificates.chain(others) {
        let answer = client.get(&format!("/{name}")).await;
        if name == "good" {
            assert_eq!((answer.status.as_u16(), answer.text()), (200, "ok"));
            continue;
        }
        let counted = format!("litequic_origin_tls_failures_total{{reason=\"{counter}\"");
        let proxy_status = answer.field("proxy-status").unwrap();
        assert_eq!((answer.status.as_u16(), proxy_status.contains(&format!("error={error};"))), (502, true), "{name}");
        assert!(!answer.text().contains(reason.split(':').next().unwrap()), "{name}: {}", answer.text());
        running.process.await_stderr(reason);
        assert!(running.metric(&counted).await > 0, "{name}: {counted}");
        let status = running.status().await;
        let origin =
            status["origins"].as_array().unwrap().iter().find(|origin| origin["name"] == name).unwrap().clone();
        let problem = origin["problem"].as_str().unwrap().replace('"', "\\\"");
        assert!(problem.contains(reason), "{name}: {problem}");
    }
}

#[tokio::test]
async fn a_renewed_authority_counts_from_the_next_handshake_on_under_load_too() {
    let (folder, first, second) = (Folder::new(), Authority::new("first"), Authority::new("second"));
    folder.put("ca.pem", &second.pem());
    let Some((_nginx, port)) = nginx(&folder, &first, "location / { return 200 ok; }") else { return };
    let origins =
        |tls: &str| format!("[origin]\nurl = \"https://127.0.0.1:{port}\"\n[origin.tls]\nca = \"ca.pem\"\n{tls}");
    let running = Running::start(&folder, &origins("")).await;
    let client = running.client().await;
    assert_eq!(client.get("/").await.status, 502);
    folder.put("ca.pem", &first.pem());
    until("the renewed authority", async || client.get("/").await.status == 200).await;
    running.process.await_stderr("\"key\":\"origin.tls\"");

    // Under load: both, then one again.
    let (stop, served) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let mut load = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let (client, stop, served) = (running.client().await, Arc::clone(&stop), Arc::clone(&served));
        load.spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                let answer = client.get("/").await;
                assert_eq!(answer.status, 200, "{}", answer.text());
                served.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    let handshakes = "litequic_origin_tls_handshakes_total{kind=\"full\"";
    for authorities in [first.pem() + &second.pem(), first.pem()] {
        let (renewals, before) = (running.renewals(), running.metric(handshakes).await);
        folder.put("ca.pem", &authorities);
        // A file that is written again at once is read once: the load opens connections of its own accord, too.
        until("the renewal", async || running.renewals() != renewals).await;
        within("full handshakes by the new file", async {
            while running.metric(handshakes).await == before {
                load.try_join_next().into_iter().for_each(|ended| ended.unwrap());
                sleep(Duration::from_millis(10)).await;
            }
        })
        .await;
    }
    // A broken file, by name; and the old one serves on.
    folder.put("ca.pem", "");
    let (status, answer) = ask(running.admin, "POST /reload").await;
    assert_eq!(status, 422);
    assert!(
        answer.contains("origin.tls.ca = \"ca.pem\"") && answer.contains("ca.pem contains no usable certificate"),
        "{answer}"
    );
    running.process.await_stderr("not renewed: the previous content stays in force");

    // While the configuration is rejected for another reason, files are renewed.
    let config = text(running.udp, running.admin, &origins(""));
    folder.put("litequic.toml", &config.replace("[origin]\n", "[origin]\nidle_timeout = \"1x\"\n"));
    running.process.await_stderr("unknown unit");
    let before = running.metric(handshakes).await;
    folder.put("ca.pem", &(first.pem() + &second.pem()));
    until("full handshakes by the renewed file", async || running.metric(handshakes).await != before).await;
    let before = served.load(Ordering::Relaxed);
    until("requests", async || served.load(Ordering::Relaxed) >= before + 20).await;
    stop.store(true, Ordering::Relaxed);
    while let Some(ended) = load.join_next().await {
        ended.unwrap();
    }
}
