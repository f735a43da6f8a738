//! Firefox itself, headless: it offers ACK frequency by a draft of its own (docs/adr/0013-adaptive-ack-frequency.md),
//! and closes the connection over a frame that it cannot read.

use crate::support::prelude::*;
use litequic_config::{AckFrequency, CertificateFiles, Io};
use litequic_tls::LoadedCertificate;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, KeyUsagePurpose};

/// Starting a browser on a busy machine takes seconds.
const DEADLINE: Duration = Duration::from_secs(90);
/// Bytes of the page.
const PAGE: usize = 6_000_000;
const PACKET: usize = 1452;
/// Bytes a second: so slow that Firefox acknowledges as it means to rather than as it gets round to.
const RATE: u32 = 2_000_000;

/// An authority, and its certificate of localhost.
fn certificates() -> (String, LoadedCertificate) {
    let mut parameters = CertificateParams::new(Vec::new()).unwrap();
    parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let authority = CertifiedIssuer::self_signed(parameters, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let leaf = CertificateParams::new(vec!["localhost".to_owned()]).unwrap().signed_by(&key, &authority).unwrap();
    let files = CertificateFiles { cert: "(test)".into(), key: "(test)".into() };
    let leaf = LoadedCertificate::from_pem(leaf.pem().as_bytes(), key.serialize_pem().as_bytes(), &files).unwrap();
    (authority.pem(), leaf)
}

/// Firefox, and the program that makes it trust an authority.
struct Programs {
    firefox: PathBuf,
    certutil: PathBuf,
}

impl Programs {
    /// `None` where one of them is missing: the test is to return then.
    fn find() -> Option<Self> {
        Some(Self { firefox: needs::program("firefox-esr")?, certutil: needs::program("certutil")? })
    }

    /// Opens the page of localhost at `quic_port`, in a new `profile` that trusts `authority`.
    fn open(&self, profile: &Path, quic_port: u16, authority: &str) -> Process {
        let database = format!("sql:{}", profile.display());
        let pem = profile.join("authority.pem");
        fs::write(&pem, authority).unwrap();
        for arguments in
            [vec!["-N", "--empty-password"], vec!["-A", "-n", "authority", "-t", "C,,", "-i", pem.to_str().unwrap()]]
        {
            let mut certutil = Command::new(&self.certutil);
            assert!(certutil.args(["-d", &database]).args(arguments).status().unwrap().success());
        }
        let preferences = [
            ("network.http.http3.enable", "true".to_owned()),
            // HTTP/3 from the first request on: nothing listens over TCP.
            ("network.http.http3.alt-svc-mapping-for-testing", format!("\"localhost;h3=:{quic_port}\"")),
            ("network.http.http3.disable_when_third_party_roots_found", "false".to_owned()),
            ("network.captive-portal-service.enabled", "false".to_owned()),
            ("network.connectivity-service.enabled", "false".to_owned()),
            ("app.update.disabledForTesting", "true".to_owned()),
            ("app.normandy.enabled", "false".to_owned()),
            ("browser.aboutwelcome.enabled", "false".to_owned()),
            ("browser.safebrowsing.malware.enabled", "false".to_owned()),
            ("browser.safebrowsing.phishing.enabled", "false".to_owned()),
            ("datareporting.policy.dataSubmissionEnabled", "false".to_owned()),
            ("extensions.getAddons.cache.enabled", "false".to_owned()),
            ("services.settings.server", "\"http://127.0.0.1:9/\"".to_owned()),
        ];
        let preferences = preferences.map(|(name, value)| format!("user_pref(\"{name}\", {value});\n"));
        fs::write(profile.join("user.js"), preferences.concat()).unwrap();
        let mut firefox = Command::new(&self.firefox);
        // A home that is its own: it writes caches there.
        firefox.env("HOME", profile).args(["--headless", "--no-remote", "--profile"]).arg(profile);
        Process::spawn({
            firefox.arg(format!("https://localhost:{quic_port}/"));
            firefox
        })
    }
}

/// Has Firefox load a large page over a slow link from a litequic with this `ack_frequency`, and returns litequic then.
async fn load(programs: &Programs, ack_frequency: AckFrequency, up: Way) -> Litequic {
    let html = format!("<!doctype html><title>page</title><!--{}-->", "x".repeat(PAGE));
    let head = format!("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {}\r\n\r\n", html.len());
    let origin = Always::new(head + &html).await;
    let (authority, certificate) = certificates();
    let store = CertificateStore::new(certificate, []);
    let mut config = config_before(origin.address);
    config.litequic.ack_frequency = ack_frequency;
    config.litequic.io = Io::Epoll;
    let litequic = Litequic::with_certificates(&config, store, authority.clone()).await;
    let down = Way { rate: Some(RATE), ..Way::default() };
    let link = Link::between(litequic.address, Faults { up, down, ..Faults::default() });
    let profile = tempfile::tempdir().unwrap();
    let browser = programs.open(profile.path(), link.address.port(), &authority);
    let loaded = async {
        while litequic.sum(|worker| worker.quic.packets_sent.get()) < (PAGE / PACKET) as u64 {
            sleep(LOOK_AGAIN).await;
        }
    };
    timeout(DEADLINE, loaded).await.expect("Firefox loads the page");
    browser.signal("TERM");
    let ended = spawn_blocking(move || browser.end_within(DEADLINE));
    ended.await.unwrap();
    litequic
}

/// Packets that an ACK frame was for.
fn packets_an_ack(litequic: &Litequic) -> f64 {
    litequic.sum(|worker| worker.quic.packets_sent.get()) as f64
        / litequic.sum(|worker| worker.quic.ack_frames_received.get()) as f64
}

/// Firefox took every frame that it was sent.
fn content(litequic: &Litequic) {
    assert_eq!(litequic.sum(|worker| worker.quic.closed_client_transport.get()), 0);
    assert_eq!(litequic.sum(|worker| worker.quic.ack_frequency_misplaced.get()), 0);
}

#[tokio::test]
async fn firefox_acknowledges_as_rarely_as_it_is_asked_to() {
    let Some(programs) = Programs::find() else { return };
    let litequic = load(&programs, AckFrequency::Off, Way::default()).await;
    let unasked = packets_an_ack(&litequic);
    content(&litequic);
    litequic.stop().await;
    let litequic = load(&programs, AckFrequency::Fixed(20), Way::default()).await;
    let asked = packets_an_ack(&litequic);
    content(&litequic);
    assert!(litequic.sum(|worker| worker.quic.ack_frequency_acknowledged.get()) > 0);
    println!("{unasked:.1} packets an ACK unasked, {asked:.1} where it is asked for 20");
    // On a machine at rest 3.6 and 16.7.
    assert!(asked >= 12.0 || asked >= 3.0 * unasked, "{unasked:.1} packets an ACK unasked, {asked:.1} asked for 20");
    litequic.stop().await;
}

#[tokio::test]
async fn firefox_whose_acknowledgements_pile_up_is_asked_for_fewer() {
    let Some(programs) = Programs::find() else { return };
    let bunched = Way { bunch: Some(Duration::from_millis(20)), ..Way::default() };
    let litequic = load(&programs, AckFrequency::Adaptive, bunched).await;
    content(&litequic);
    assert!(litequic.sum(|worker| worker.quic.ack_frequency_offered.get()) > 0);
    let (packets, asked) =
        (packets_an_ack(&litequic), litequic.sum(|worker| worker.quic.ack_frequency_acknowledged.get()));
    println!("{packets:.1} packets an ACK, {asked} questions acknowledged");
    // A machine that is slow enough has Firefox acknowledge so rarely that there is nothing to request.
    assert!(asked > 0 || packets > 8.0, "{packets:.1} packets an ACK");
    litequic.stop().await;
}
