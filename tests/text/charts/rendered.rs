//! What `helm` makes of the charts, and of each value that matters.

use super::ROOT;
use litequic::config;
use std::{
    fs,
    io::{self, Write},
    path::Path,
    process::{Command, Output},
};

/// The charts in a folder of their own, where helm may write.
pub(super) struct Helm {
    pub(super) folder: tempfile::TempDir,
}

impl Helm {
    /// Where there is a helm; a machine that builds litequic need not have one.
    pub(super) fn find() -> Option<Self> {
        if Command::new("helm").arg("version").output().is_err() {
            // Past the harness, which would show it of tests that fail alone.
            let _ = writeln!(io::stderr(), "skipped: there is no helm");
            return None;
        }
        let helm = Self { folder: tempfile::tempdir().unwrap() };
        let source = Path::new(ROOT).join("helm");
        let copied = Command::new("cp").arg("-r").arg(source).arg(helm.folder.path()).status().unwrap();
        assert!(copied.success());
        let updated = helm.run(&["dependency", "update", "helm/examples/application"]);
        assert!(updated.status.success(), "{updated:?}");
        Some(helm)
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let folder = self.folder.path();
        let mut command = Command::new("helm");
        command.current_dir(folder).args(arguments);
        for (name, value) in [("CACHE", "cache"), ("CONFIG", "config"), ("DATA", "data")] {
            command.env(format!("HELM_{name}_HOME"), folder.join(value));
        }
        command.output().unwrap()
    }

    /// `helm template` of the release `it`, with a Kubernetes that the charts are for.
    pub(super) fn template(&self, chart: &str, more: &[&str]) -> Output {
        let chart = format!("helm/{chart}");
        self.run(&[&["template", "it", &chart, "--namespace", "there", "--kube-version", "1.31.0"], more].concat())
    }

    pub(super) fn rendered(&self, chart: &str, more: &[&str]) -> String {
        let output = self.template(chart, more);
        assert!(output.status.success(), "{chart} {more:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }
}

const ORIGIN: &str = "config.origin.url=http://web:8080";

/// The edge chart with an origin and what `--set` has.
fn edge(helm: &Helm, set: &str) -> String {
    let set = if set.is_empty() { ORIGIN.into() } else { format!("{ORIGIN},{set}") };
    helm.rendered("litequic", &["--set", &set])
}

pub(super) fn sidecar(helm: &Helm, set: &str) -> String {
    let set = if set.is_empty() { String::new() } else { format!("litequic-sidecar.{set}") };
    helm.rendered("examples/application", &["--set", &set])
}

/// litequic.toml in a rendered ConfigMap, as litequic reads it.
pub(super) fn configuration(rendered: &str) -> config::Config {
    let (_, block) = rendered.split_once("  litequic.toml: |\n").unwrap();
    let lines = block.lines().take_while(|line| line.is_empty() || line.starts_with("    "));
    let text: String = lines.map(|line| format!("{}\n", line.strip_prefix("    ").unwrap_or(line))).collect();
    let file = Path::new("/etc/litequic/config/litequic.toml");
    config::parse(&text, file, |_| Some("x".into())).unwrap_or_else(|faults| panic!("{faults}\n{text}"))
}

/// The manifest of this kind and name.
pub(super) fn manifest<'a>(rendered: &'a str, kind: &str, name: &str) -> Option<&'a str> {
    let of_kind =
        |text: &&str| text.contains(&format!("\nkind: {kind}\n")) && text.contains(&format!("\n  name: {name}\n"));
    rendered.split("\n---\n").find(of_kind)
}

#[test]
fn whatever_is_configured_reaches_litequic() {
    let Some(helm) = Helm::find() else { return };
    let plain = configuration(&edge(&helm, ""));
    assert_eq!(plain.listen.advertised_port.map(u16::from), Some(443));
    assert_eq!(plain.certificates[0].key, Path::new("/etc/litequic/tls/litequic-tls.key"));
    assert_eq!((plain.timeouts.drain_grace.as_secs(), plain.timeouts.drain.as_secs()), (5, 25));

    let values = helm.folder.path().join("values.yaml");
    let config = r#"
config:
  limits: {max_requests: 1000000, max_body_bytes: 16 MiB}
  access_log: {path: stderr, sample: 0.25}
  log: {level: debug}
  litequic: {ack_frequency: 10, gso: false}
  trusted_proxies: [10.0.0.0/8, "fd00::/8"]
  origins:
    packager: {url: "unix:/run/a \"quoted\" and \\ slashed.sock"}
  routes:
    - {host: "*.example.com", path_prefix: /live, origin: packager, max_body_bytes: 4 GiB}
    - {origin: packager}
"#;
    fs::write(&values, config).unwrap();
    let config = configuration(&helm.rendered("litequic", &["--values", values.to_str().unwrap()]));
    assert_eq!(config.limits.max_requests, 1_000_000);
    assert_eq!(config.access_log.sample, config::Share(250_000));
    assert_eq!((config.routes.len(), config.trusted_proxies.len()), (2, 2));
    let packager = &config.origins.iter().find(|(name, _)| *name == "packager").unwrap().1;
    assert!(format!("{packager:?}").contains(r#"quoted"#), "{packager:?}");

    let beside = configuration(&sidecar(&helm, "config.listen.workers=3"));
    assert_eq!(beside.listen.workers, config::Workers::Count(3.try_into().unwrap()));
}

#[test]
fn every_example_renders_a_valid_configuration() {
    let Some(helm) = Helm::find() else { return };
    let examples = fs::read_dir(Path::new(ROOT).join("helm/examples")).unwrap().map(|entry| entry.unwrap().path());
    let files: Vec<_> = examples.filter(|path| path.extension().is_some_and(|extension| extension == "yaml")).collect();
    assert!(files.len() >= 4, "{files:?}");
    for file in files {
        configuration(&helm.rendered("litequic", &["--values", file.to_str().unwrap()]));
        let chart =
            ["lint", "--strict", "--kube-version", "1.31.0", "helm/litequic", "--values", file.to_str().unwrap()];
        assert!(helm.run(&chart).status.success(), "{}", file.display());
    }
    let linted = helm.run(&["lint", "--strict", "--kube-version", "1.31.0", "helm/examples/application"]);
    assert!(linted.status.success(), "{linted:?}");
    configuration(&sidecar(&helm, ""));
}

/// What `--set` has, a manifest by kind and name, and what it then holds; or with `!` does not.
#[test]
fn values_of_the_edge_chart_do_what_they_say() {
    let Some(helm) = Helm::find() else { return };
    let name = "it-litequic";
    let table: &[(&str, &str, &str, &[&str])] = &[
        ("", "Deployment", name, &["replicas: 2", "terminationGracePeriodSeconds: 35", "image: \"litequic:0.1.0\""]),
        (
            "",
            "Deployment",
            name,
            &["runAsNonRoot: true", "readOnlyRootFilesystem: true", "allowPrivilegeEscalation: false"],
        ),
        (
            "",
            "Deployment",
            name,
            &["automountServiceAccountToken: false", "type: RuntimeDefault", "- ALL", "!hostPort"],
        ),
        // 30 s of drain, and a probe every 5.
        (
            "",
            "Deployment",
            name,
            &[
                "path: /readyz, port: probes}\n            periodSeconds: 5\n            timeoutSeconds: 2\n            failureThreshold: 8",
            ],
        ),
        ("drain.seconds=55", "Deployment", name, &["terminationGracePeriodSeconds: 65", "failureThreshold: 14"]),
        ("readiness.failureThreshold=2", "Deployment", name, &["failureThreshold: 2\n"]),
        ("", "Deployment", name, &["topologyKey: kubernetes.io/hostname", "labelSelector:"]),
        ("replicas=7", "Deployment", name, &["replicas: 7"]),
        ("autoscaling.enabled=true", "Deployment", name, &["!replicas:"]),
        (
            "autoscaling.enabled=true,autoscaling.maxReplicas=5",
            "HorizontalPodAutoscaler",
            name,
            &["kind: Deployment, name: it-litequic}", "minReplicas: 2", "maxReplicas: 5", "averageUtilization: 70"],
        ),
        ("configMap=mine", "Deployment", name, &["configMap: {name: mine}"]),
        (
            "image.digest=sha256:0000000000000000000000000000000000000000000000000000000000000000",
            "Deployment",
            name,
            &["image: \"litequic@sha256:0000"],
        ),
        ("image.repository=r.example/l,image.tag=v2", "Deployment", name, &["image: \"r.example/l:v2\""]),
        ("imagePullSecrets[0]=pull", "Deployment", name, &["imagePullSecrets:\n        - name: pull"]),
        ("kind=DaemonSet,hostPort=443", "DaemonSet", name, &["hostPort: 443", "!replicas:"]),
        // A second pod has no place on a node whose port the first one has: the new one can only come after it.
        (
            "kind=DaemonSet,hostPort=443",
            "DaemonSet",
            name,
            &["rollingUpdate:\n      maxSurge: 0\n      maxUnavailable: 1\n"],
        ),
        (
            "kind=DaemonSet,hostPort=443,updateStrategy.rollingUpdate.maxUnavailable=20%",
            "DaemonSet",
            name,
            &["maxSurge: 0\n      maxUnavailable: 20%\n"],
        ),
        ("kind=DaemonSet", "DaemonSet", name, &["maxSurge: 1\n      maxUnavailable: 0\n"]),
        ("", "Deployment", name, &["rollingUpdate:\n      maxSurge: 1\n      maxUnavailable: 0\n"]),
        (
            "updateStrategy.rollingUpdate.maxSurge=50%",
            "Deployment",
            name,
            &["maxSurge: 50%\n      maxUnavailable: 0\n"],
        ),
        (
            "kind=DaemonSet,hostPort=443,redirect=true,ports.redirect=8081",
            "DaemonSet",
            name,
            &[
                "{name: h3, containerPort: 8443, protocol: UDP, hostPort: 443}",
                "{name: https, containerPort: 8443, protocol: TCP, hostPort: 443}",
                "{name: redirect, containerPort: 8081, protocol: TCP, hostPort: 80}",
            ],
        ),
        (
            "kind=DaemonSet,hostPort=443,redirect=true,ports.redirect=8081",
            "Service",
            name,
            &["{name: redirect, port: 80, targetPort: redirect, protocol: TCP, appProtocol: http}", "!hostPort"],
        ),
        (
            "kind=DaemonSet,hostPort=8443,redirect=true",
            "ConfigMap",
            name,
            &["redirect = [\"[::]:8080\"]", "advertised_port = 8443"],
        ),
        (
            "kind=DaemonSet,hostPort=443,redirect=true,redirectHostPort=null",
            "DaemonSet",
            name,
            &["{name: redirect, containerPort: 8080, protocol: TCP}"],
        ),
        ("redirect=true", "Deployment", name, &["!hostPort"]),
        ("kind=DaemonSet,hostPort=80", "DaemonSet", name, &["hostPort: 80}"]),
        ("redirect=true", "Deployment", name, &["name: redirect, containerPort: 8080"]),
        ("redirect=true", "Service", name, &["name: redirect, port: 80, targetPort: redirect"]),
        ("redirect=true", "ConfigMap", name, &["redirect = [\"[::]:8080\"]"]),
        ("listenAddress=0.0.0.0", "ConfigMap", name, &["udp = [\"0.0.0.0:8443\"]", "probes = \"0.0.0.0:9444\""]),
        ("ports.https=4433", "ConfigMap", name, &["udp = [\"[::]:4433\"]"]),
        ("ports.https=4433", "Deployment", name, &["name: h3, containerPort: 4433, protocol: UDP"]),
        (
            "",
            "Service",
            name,
            &["name: h3, port: 443, targetPort: h3, protocol: UDP", "port: 443, targetPort: https", "type: ClusterIP"],
        ),
        (
            "service.type=NodePort,service.nodePort=30443",
            "Service",
            name,
            &["protocol: UDP, nodePort: 30443", "appProtocol: https, nodePort: 30443", "externalTrafficPolicy: Local"],
        ),
        ("service.type=NodePort,service.nodePort=30443", "ConfigMap", name, &["advertised_port = 30443"]),
        ("service.type=LoadBalancer,service.nodePort=30443", "ConfigMap", name, &["advertised_port = 443"]),
        ("service.type=LoadBalancer,service.split=true", "Service", name, &["!UDP", "targetPort: https"]),
        (
            "service.type=LoadBalancer,service.split=true,service.udpAnnotations.a=b",
            "Service",
            "it-litequic-udp",
            &["!TCP", "targetPort: h3", "a: b"],
        ),
        ("service.sessionAffinity=ClientIP", "Service", name, &["sessionAffinity: ClientIP"]),
        ("", "PodDisruptionBudget", name, &["maxUnavailable: 1", "unhealthyPodEvictionPolicy: AlwaysAllow"]),
        (
            "networkPolicy.enabled=true",
            "NetworkPolicy",
            name,
            &["{port: h3, protocol: UDP}", "egress:", "- {}", "!probes"],
        ),
        (
            "networkPolicy.enabled=true,networkPolicy.metricsFrom[0].podSelector.matchLabels.a=b",
            "NetworkPolicy",
            name,
            &["{port: probes, protocol: TCP}", "a: b"],
        ),
        (
            "networkPolicy.enabled=true,networkPolicy.egress[0].ports[0].port=8080",
            "NetworkPolicy",
            name,
            &["port: 8080", "!- {}"],
        ),
        ("metrics.serviceMonitor.enabled=true", "ServiceMonitor", name, &["path: /metrics", "interval: 30s"]),
        (
            "metrics.serviceMonitor.enabled=true,metrics.serviceMonitor.scrapeTimeout=5s,\
             metrics.serviceMonitor.metricRelabelings[0].action=drop",
            "ServiceMonitor",
            name,
            &["scrapeTimeout: 5s", "metricRelabelings:\n        - action: drop"],
        ),
        (
            "metrics.serviceMonitor.enabled=true",
            "Service",
            "it-litequic-metrics",
            &["clusterIP: None", "targetPort: probes"],
        ),
        (
            "certificates[0].secretName=a,certificates[1].secretName=b",
            "Deployment",
            name,
            &["{key: tls.key, path: b.key}", "!subPath:"],
        ),
        (
            "certificates[0].secretName=a,certificates[0].certManager.issuerRef.name=i,certificates[0].certManager.dnsNames[0]=www.example.com",
            "Certificate",
            "a",
            &["secretName: a", "- www.example.com", "name: i"],
        ),
        (
            "certificates[0].secretName=a,certificates[0].certManager.issuerRef.name=i,certificates[0].certManager.dnsNames[0]=www.example.com",
            "Pod",
            "it-litequic-test",
            &["--resolve=www.example.com:443:$(IT_LITEQUIC_SERVICE_HOST)", "https://www.example.com:443/"],
        ),
        ("", "Pod", "it-litequic-test", &["https://it-litequic.there.svc:443/", "--insecure"]),
        (
            "test.ca=ca.crt,test.host=h",
            "Pod",
            "it-litequic-test",
            &["--ca=/tls/ca.crt", "https://h:443/", "!--insecure"],
        ),
        (
            "nodeSelector.a=b,tolerations[0].key=c",
            "Pod",
            "it-litequic-test",
            &["nodeSelector:\n    a: b", "tolerations:\n    - key: c", "limits: {memory: 64Mi}"],
        ),
        ("service.split=true", "Pod", "it-litequic-test", &["$(IT_LITEQUIC_UDP_SERVICE_HOST)"]),
        ("fullnameOverride=other", "Deployment", "other", &["name: other"]),
        ("serviceAccount.create=false", "Deployment", name, &["serviceAccountName: default"]),
    ];
    for (set, kind, name, held) in table {
        let rendered = edge(&helm, set);
        let manifest = manifest(&rendered, kind, name).unwrap_or_else(|| panic!("{set}: no {kind} {name}\n{rendered}"));
        for text in *held {
            let (text, wanted) = text.strip_prefix('!').map_or((*text, true), |text| (text, false));
            assert_eq!(manifest.contains(text), wanted, "{set}: {kind} {name}: {text}\n{manifest}");
        }
    }
    for (set, kind) in [
        ("podDisruptionBudget.enabled=false", "PodDisruptionBudget"),
        ("serviceAccount.create=false", "ServiceAccount"),
        ("", "NetworkPolicy"),
        ("", "HorizontalPodAutoscaler"),
        ("", "ServiceMonitor"),
        ("", "Certificate"),
        ("configMap=mine", "ConfigMap"),
        ("kind=DaemonSet", "Deployment"),
    ] {
        assert!(!edge(&helm, set).contains(&format!("\nkind: {kind}\n")), "{set}: {kind}");
    }
}

#[test]
fn the_sidecar_starts_before_its_application_and_ends_after_it() {
    let Some(helm) = Helm::find() else { return };
    let rendered = sidecar(&helm, "");
    let pod = manifest(&rendered, "Deployment", "it").unwrap();
    let (containers, _) = pod.split_once("\n      volumes:\n").unwrap();
    let (sidecar, application) = containers.split_once("\n      containers:\n").unwrap();
    for text in [
        "initContainers:",
        "restartPolicy: Always",
        "ctl, drain, --admin, \"127.0.0.1:9443\"]",
        "startupProbe:\n            httpGet: {path: /healthz",
        "livenessProbe:\n            httpGet: {path: /healthz",
        "readinessProbe:\n            httpGet: {path: /readyz",
        "runAsNonRoot: true",
        "terminationGracePeriodSeconds: 40",
    ] {
        assert!(sidecar.contains(text), "{text}\n{sidecar}");
    }
    assert!(application.contains("preStop:\n              sleep: {seconds: 10}"), "{application}");
    let service = manifest(&rendered, "Service", "it").unwrap();
    assert!(service.contains("port: 443, targetPort: h3, protocol: UDP"), "{service}");
    let own = self::sidecar(&helm, "configMap=mine");
    assert!(own.contains("configMap: {name: mine}") && !own.contains("\nkind: ConfigMap\n"), "{own}");
    // What takes longest counts.
    let patient = self::sidecar(&helm, "drain.originSeconds=120");
    assert!(patient.contains("terminationGracePeriodSeconds: 130"), "{patient}");
}

/// The annotation that changes a pod's template.
fn restart(rendered: &str) -> &str {
    rendered.split_once("litequic/restart: ").unwrap().1.split_once('\n').unwrap().0
}

#[test]
fn a_change_that_litequic_takes_on_restarts_no_pod_and_one_that_it_cannot_does() {
    let Some(helm) = Helm::find() else { return };
    let before = edge(&helm, "");
    for set in [
        "config.limits.max_headers=50",
        "config.log.level=debug",
        "config.access_log.path=stderr",
        "config.admin.ready_needs_origin=true",
        "drain.graceSeconds=5",
        "config.routes[0].origin=origin",
    ] {
        assert_eq!(restart(&before), restart(&edge(&helm, set)), "{set}");
    }
    for set in [
        "config.listen.workers=3",
        "config.litequic.gso=false",
        "config.log.format=json",
        "ports.probes=9000",
        "redirect=true",
        "service.port=8443",
    ] {
        assert_ne!(restart(&before), restart(&edge(&helm, set)), "{set}");
    }
}

#[test]
fn wrong_values_are_refused_and_said() {
    let Some(helm) = Helm::find() else { return };
    let table = [
        ("litequic", "a=b", "where do requests go? Set config.origin.url"),
        ("litequic", "replicas=two", "'/replicas'"),
        ("litequic", "service.nodePrt=1", "'nodePrt' not allowed"),
        ("litequic", "config.listen.wokers=2", "'wokers' not allowed"),
        ("litequic", "config.listen.udp=x", "'udp' not allowed"),
        ("litequic", "config.limits.max_headers=many", "'/config/limits/max_headers'"),
        ("litequic", "kind=StatefulSet", "'/kind'"),
        ("litequic", "certificates[0].secretName=Not_a_name", "'/certificates/0/secretName'"),
        ("litequic", "certificates=null", "certificates"),
        ("litequic", "hostPort=443", "hostPort: two pods of a Deployment"),
        (
            "litequic",
            "kind=DaemonSet,hostPort=443,updateStrategy.rollingUpdate.maxSurge=1",
            "updateStrategy.rollingUpdate.maxSurge: with a hostPort a node has no place for a second pod",
        ),
        (
            "litequic",
            "kind=DaemonSet,hostPort=443,updateStrategy.rollingUpdate.maxUnavailable=0",
            "updateStrategy.rollingUpdate: with maxSurge and maxUnavailable of 0 no pod is ever replaced",
        ),
        ("litequic", "kind=DaemonSet,autoscaling.enabled=true", "autoscaling.enabled: a DaemonSet"),
        ("litequic", "autoscaling.targetCPU=most", "'/autoscaling/targetCPU'"),
        ("litequic", "configMap=Not_a_name", "'/configMap'"),
        ("litequic", "kind=DaemonSet,hostPort=80,redirect=true", "redirectHostPort: is hostPort already"),
        ("litequic", "service.type=NodePort", "service.nodePort: a Service of the type NodePort needs one"),
        ("litequic", "service.nodePort=30443", "service.nodePort: a Service of the type ClusterIP has none"),
        (
            "litequic",
            "service.type=LoadBalancer,service.split=true,service.nodePort=30443",
            "service.nodePort: two Services cannot have the same one",
        ),
        ("examples/application", "litequic-sidecar.drain.secnds=1", "'secnds' not allowed"),
        ("examples/application", "litequic-sidecar.config.origin.urls=1", "'urls' not allowed"),
    ];
    for (chart, set, said) in table {
        let set = if set == "a=b" || chart != "litequic" {
            set.replace("a=b", "replicas=1")
        } else {
            format!("{ORIGIN},{set}")
        };
        let output = helm.template(chart, &["--set", &set]);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && stderr.contains(said), "{set}: {stderr}");
    }
    let old = helm.run(&["template", "it", "helm/litequic", "--set", ORIGIN, "--kube-version", "1.28.0"]);
    assert!(String::from_utf8_lossy(&old.stderr).contains("kubeVersion: >=1.29.0"), "{old:?}");
}
