//! What `helm` makes of the charts, and of each value that matters.

use super::ROOT;
use litequic_config as config;
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

/// A file in a rendered ConfigMap.
pub(super) fn file_in(rendered: &str, name: &str) -> String {
    let (_, block) = rendered.split_once(&format!("  {name}: |\n")).unwrap();
    let lines = block.lines().take_while(|line| line.is_empty() || line.starts_with("    "));
    lines.map(|line| format!("{}\n", line.strip_prefix("    ").unwrap_or(line))).collect()
}

/// litequic.toml in a rendered ConfigMap, as litequic reads it.
pub(super) fn configuration(rendered: &str) -> config::Config {
    let text = file_in(rendered, "litequic.toml");
    let file = Path::new("/etc/litequic/config/litequic.toml");
    let environment = |name: &str| match name {
        "AWS_LBC_QUIC_SERVER_ID" => Some("AQIDBAUGBwg=".into()),
        "POD_IP" => Some("10.1.2.3".into()),
        _ => Some("x".into()),
    };
    config::parse_config(&text, file, environment).unwrap_or_else(|faults| panic!("{faults}\n{text}"))
}

/// The manifest of this kind and name.
pub(super) fn manifest<'a>(rendered: &'a str, kind: &str, name: &str) -> Option<&'a str> {
    let (kind, name) = (format!("kind: {kind}"), format!("  name: {name}"));
    let of_kind = |text: &&str| [&kind, &name].iter().all(|wanted| text.lines().any(|line| line == *wanted));
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
  limits: {max_streams: 100, max_body_bytes: 16 MiB}
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
    assert_eq!(config.limits.max_streams, 100);
    assert_eq!(config.access_log.sample, config::Fraction(250_000));
    assert_eq!((config.routes.len(), config.trusted_proxies.len()), (2, 2));
    let packager = &config.origins.iter().find(|(name, _)| *name == "packager").unwrap().1;
    assert!(format!("{packager:?}").contains(r#"quoted"#), "{packager:?}");

    let beside = configuration(&sidecar(&helm, "config.listen.workers=3"));
    assert_eq!(beside.listen.workers, Some(3.try_into().unwrap()));
}

#[test]
fn every_example_renders_a_valid_configuration() {
    let Some(helm) = Helm::find() else { return };
    let examples = fs::read_dir(Path::new(ROOT).join("helm/examples")).unwrap().map(|entry| entry.unwrap().path());
    let files: Vec<_> = examples.filter(|path| path.extension().is_some_and(|extension| extension == "yaml")).collect();
    assert!(files.len() >= 7, "{files:?}");
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

/// What `--set` has, and what a manifest then holds; or with `!` does not.
type Case = (&'static str, &'static [&'static str]);

#[test]
fn values_of_the_edge_chart_do_what_they_say() {
    let Some(helm) = Helm::find() else { return };
    let name = "it-litequic";
    let deployment: &[Case] = &[
        ("", &["replicas: 2", "terminationGracePeriodSeconds: 35", "image: \"litequic:0.1.0\""]),
        ("", &["runAsNonRoot: true", "readOnlyRootFilesystem: true", "allowPrivilegeEscalation: false"]),
        ("", &["automountServiceAccountToken: false", "type: RuntimeDefault", "- ALL", "!hostPort"]),
        // 30 s of drain, and a probe every 5.
        (
            "",
            &[
                "path: /readyz, port: probes}\n            failureThreshold: 8\n            periodSeconds: 5\n            timeoutSeconds: 2",
            ],
        ),
        ("drain.seconds=55", &["terminationGracePeriodSeconds: 65", "failureThreshold: 14"]),
        ("readinessProbe.failureThreshold=2", &["failureThreshold: 2\n"]),
        ("", &["topologyKey: kubernetes.io/hostname", "labelSelector:"]),
        ("replicas=7", &["replicas: 7"]),
        ("autoscaling.enabled=true", &["!replicas:"]),
        ("configMap=mine", &["configMap: {name: mine}"]),
        (
            "image.digest=sha256:0000000000000000000000000000000000000000000000000000000000000000",
            &["image: \"litequic@sha256:0000"],
        ),
        ("image.repository=r.example/l,image.tag=v2", &["image: \"r.example/l:v2\""]),
        ("imagePullSecrets[0]=pull", &["imagePullSecrets:\n        - name: pull"]),
        ("", &["rollingUpdate:\n      maxSurge: 1\n      maxUnavailable: 0\n"]),
        ("updateStrategy.rollingUpdate.maxSurge=50%", &["maxSurge: 50%\n      maxUnavailable: 0\n"]),
        ("redirect=true", &["!hostPort"]),
        ("redirect=true", &["name: redirect, containerPort: 8080"]),
        ("ports.https=4433", &["name: h3, containerPort: 4433, protocol: UDP"]),
        ("certificates[0].secretName=a,certificates[1].secretName=b", &["{key: tls.key, path: b.key}", "!subPath:"]),
        ("serviceAccount.create=false", &["serviceAccountName: default"]),
        (
            "imagePullSecrets[0]=pull,imagePullSecrets[1].name=more",
            &["imagePullSecrets:\n        - name: pull\n        - name: more"],
        ),
        (
            "livenessProbe.initialDelaySeconds=7,livenessProbe.failureThreshold=9,startupProbe.enabled=false",
            &["failureThreshold: 9\n            initialDelaySeconds: 7", "!startupProbe", "!enabled:"],
        ),
        ("livenessProbe.enabled=false", &["!livenessProbe", "startupProbe:", "readinessProbe:"]),
        ("readinessProbe.timeoutSeconds=4", &["periodSeconds: 5\n            timeoutSeconds: 4"]),
        ("", &["!lifecycle:"]),
        (
            "lifecycle.preStop.sleep.seconds=3",
            &["lifecycle:\n            preStop:\n              sleep:\n                seconds: 3"],
        ),
        (
            "initContainers[0].name=first,initContainers[0].image=i",
            &["initContainers:\n        - image: i\n          name: first"],
        ),
        (
            "extraContainers[0].name=beside,extraContainers[0].image=i",
            &["        - image: i\n          name: beside\n      volumes:"],
        ),
        ("envFrom[0].secretRef.name=s", &["envFrom:\n            - secretRef:\n                name: s"]),
        (
            "commonLabels.team=web,commonLabels.tier=edge,podLabels.tier=other",
            &["    team: web\n", "    tier: edge\n", "        team: web\n        tier: other\n"],
        ),
        ("deploymentAnnotations.a=b", &["  annotations:\n    a: b\nspec:"]),
        ("", &["!hostNetwork", "!dnsPolicy", "!minReadySeconds", "!revisionHistoryLimit"]),
        (
            "dnsPolicy=None,dnsConfig.nameservers[0]=10.0.0.10,dnsConfig.searches[0]=svc.cluster.local",
            &[
                "dnsPolicy: None",
                "dnsConfig:\n        nameservers:\n        - 10.0.0.10\n        searches:\n        - svc",
            ],
        ),
        (
            "hostAliases[0].ip=10.0.0.1,hostAliases[0].hostnames[0]=web",
            &["hostAliases:\n        - hostnames:\n          - web\n          ip: 10.0.0.1"],
        ),
        ("runtimeClassName=gvisor", &["runtimeClassName: gvisor"]),
        ("minReadySeconds=10,revisionHistoryLimit=0", &["minReadySeconds: 10\n", "revisionHistoryLimit: 0\n"]),
    ];
    let horizontal_pod_autoscaler: &[Case] = &[
        (
            "autoscaling.enabled=true,autoscaling.maxReplicas=5",
            &["kind: Deployment, name: it-litequic}", "minReplicas: 2", "maxReplicas: 5", "averageUtilization: 70"],
        ),
        (
            "autoscaling.enabled=true,autoscaling.targetMemory=80",
            &[
                "name: cpu\n        target: {type: Utilization, averageUtilization: 70}",
                "name: memory\n        target: {type: Utilization, averageUtilization: 80}",
                "scaleDown:\n      policies:\n      - periodSeconds: 60\n        type: Pods\n        value: 1\n      stabilizationWindowSeconds: 300",
            ],
        ),
        (
            "autoscaling.enabled=true,autoscaling.targetCPU=null,autoscaling.targetConnections=5000",
            &[
                "type: Pods\n      pods:\n        metric: {name: litequic_connections_open}",
                "target: {type: AverageValue, averageValue: \"5000\"}",
                "!name: cpu",
            ],
        ),
        (
            "autoscaling.enabled=true,autoscaling.targetCPU=null,autoscaling.metrics[0].type=External,\
             autoscaling.metrics[0].external.metric.name=queue",
            &["metrics:\n    - external:\n        metric:\n          name: queue\n      type: External", "!name: cpu"],
        ),
    ];
    let daemon_set: &[Case] = &[
        ("kind=DaemonSet,hostPort=443", &["hostPort: 443", "!replicas:"]),
        // A second pod has no place on a node whose port the first one has: the new one can only come after it.
        ("kind=DaemonSet,hostPort=443", &["rollingUpdate:\n      maxSurge: 0\n      maxUnavailable: 1\n"]),
        (
            "kind=DaemonSet,hostPort=443,updateStrategy.rollingUpdate.maxUnavailable=20%",
            &["maxSurge: 0\n      maxUnavailable: 20%\n"],
        ),
        ("kind=DaemonSet", &["maxSurge: 1\n      maxUnavailable: 0\n"]),
        (
            "kind=DaemonSet,hostPort=443,redirect=true,ports.redirect=8081",
            &[
                "{name: h3, containerPort: 8443, protocol: UDP, hostPort: 443}",
                "{name: https, containerPort: 8443, protocol: TCP, hostPort: 443}",
                "{name: redirect, containerPort: 8081, protocol: TCP, hostPort: 80}",
            ],
        ),
        (
            "kind=DaemonSet,hostPort=443,redirect=true,redirectHostPort=null",
            &["{name: redirect, containerPort: 8080, protocol: TCP}"],
        ),
        ("kind=DaemonSet,hostPort=80", &["hostPort: 80}"]),
        ("kind=DaemonSet,deploymentAnnotations.a=b", &["  annotations:\n    a: b\nspec:"]),
        (
            "kind=DaemonSet,hostNetwork=true",
            &["hostNetwork: true", "dnsPolicy: ClusterFirstWithHostNet", "maxSurge: 0\n      maxUnavailable: 1\n"],
        ),
        ("kind=DaemonSet,hostNetwork=true,dnsPolicy=Default,hostPort=8443", &["dnsPolicy: Default", "hostPort: 8443"]),
    ];
    let service: &[Case] = &[
        (
            "kind=DaemonSet,hostPort=443,redirect=true,ports.redirect=8081",
            &["{name: redirect, port: 80, targetPort: redirect, protocol: TCP, appProtocol: http}", "!hostPort"],
        ),
        ("redirect=true", &["name: redirect, port: 80, targetPort: redirect"]),
        (
            "",
            &["name: h3, port: 443, targetPort: h3, protocol: UDP", "port: 443, targetPort: https", "type: ClusterIP"],
        ),
        (
            "service.type=NodePort,service.nodePort=30443",
            &["protocol: UDP, nodePort: 30443", "appProtocol: https, nodePort: 30443", "externalTrafficPolicy: Local"],
        ),
        ("service.type=LoadBalancer,service.split=true", &["!UDP", "targetPort: https"]),
        ("service.sessionAffinity=ClientIP", &["sessionAffinity: ClientIP"]),
        ("commonLabels.team=web", &["    team: web\n"]),
        (
            "service.labels.a=b,service.clusterIP=10.96.0.9,service.externalIPs[0]=192.0.2.1",
            &["    a: b\n", "clusterIP: 10.96.0.9", "externalIPs:\n    - 192.0.2.1"],
        ),
        ("service.clusterIP=None", &["clusterIP: None"]),
        (
            "service.type=LoadBalancer,service.loadBalancerIP=192.0.2.2,service.healthCheckNodePort=30900",
            &["loadBalancerIP: 192.0.2.2", "healthCheckNodePort: 30900"],
        ),
        ("", &["!clusterIP", "!externalIPs", "!loadBalancerIP", "!healthCheckNodePort"]),
    ];
    let config_map: &[Case] = &[
        ("kind=DaemonSet,hostPort=8443,redirect=true", &["redirect = [\"[::]:8080\"]", "advertised_port = 8443"]),
        ("redirect=true", &["redirect = [\"[::]:8080\"]"]),
        ("listenAddress=0.0.0.0", &["udp = [\"0.0.0.0:8443\"]", "probes = \"0.0.0.0:9444\""]),
        ("ports.https=4433", &["udp = [\"[::]:4433\"]"]),
        ("service.type=NodePort,service.nodePort=30443", &["advertised_port = 30443"]),
        ("service.type=LoadBalancer,service.nodePort=30443", &["advertised_port = 443"]),
        ("commonLabels.team=web", &["    team: web\n"]),
    ];
    let pod_disruption_budget: &[Case] = &[
        ("", &["maxUnavailable: 1", "unhealthyPodEvictionPolicy: AlwaysAllow"]),
        ("commonLabels.team=web", &["    team: web\n", "!      team: web\n"]),
        ("podDisruptionBudget.minAvailable=50%", &["minAvailable: 50%", "!maxUnavailable"]),
        ("podDisruptionBudget.minAvailable=0", &["minAvailable: 0\n"]),
    ];
    let service_monitor: &[Case] = &[
        ("metrics.serviceMonitor.enabled=true", &["path: /metrics", "interval: 30s"]),
        (
            "metrics.serviceMonitor.enabled=true,metrics.serviceMonitor.scrapeTimeout=5s,\
             metrics.serviceMonitor.metricRelabelings[0].action=drop",
            &["scrapeTimeout: 5s", "metricRelabelings:\n        - action: drop"],
        ),
        (
            "metrics.serviceMonitor.enabled=true,metrics.serviceMonitor.namespace=monitoring,\
             metrics.serviceMonitor.jobLabel=app.kubernetes.io/name,metrics.serviceMonitor.honorLabels=true",
            &[
                "  namespace: monitoring\n",
                "namespaceSelector:\n    matchNames: [there]",
                "jobLabel: app.kubernetes.io/name",
                "honorLabels: true",
            ],
        ),
        ("metrics.serviceMonitor.enabled=true", &["!namespaceSelector", "!jobLabel", "!honorLabels"]),
    ];
    let test_pod: &[Case] = &[
        (
            "certificates[0].secretName=a,certificates[0].certManager.issuerRef.name=i,certificates[0].certManager.dnsNames[0]=www.example.com",
            &["--resolve=www.example.com:443:$(IT_LITEQUIC_SERVICE_HOST)", "https://www.example.com:443/"],
        ),
        ("", &["https://it-litequic.there.svc:443/", "--insecure"]),
        ("test.ca=ca.crt,test.host=h", &["--ca=/tls/ca.crt", "https://h:443/", "!--insecure"]),
        (
            "nodeSelector.a=b,tolerations[0].key=c",
            &["nodeSelector:\n    a: b", "tolerations:\n    - key: c", "limits: {memory: 64Mi}"],
        ),
        ("service.split=true", &["$(IT_LITEQUIC_UDP_SERVICE_HOST)"]),
        ("imagePullSecrets[0].name=more", &["imagePullSecrets:\n    - name: more"]),
        ("commonLabels.team=web", &["    team: web\n"]),
    ];
    let others: &[(&str, &str, Case)] = &[
        (
            "Service",
            "it-litequic-udp",
            (
                "service.type=LoadBalancer,service.split=true,service.udpAnnotations.a=b",
                &["!TCP", "targetPort: h3", "a: b"],
            ),
        ),
        (
            "NetworkPolicy",
            name,
            ("networkPolicy.enabled=true", &["{port: h3, protocol: UDP}", "egress:", "- {}", "!probes"]),
        ),
        (
            "NetworkPolicy",
            name,
            (
                "networkPolicy.enabled=true,networkPolicy.metricsFrom[0].podSelector.matchLabels.a=b",
                &["{port: probes, protocol: TCP}", "a: b"],
            ),
        ),
        (
            "NetworkPolicy",
            name,
            ("networkPolicy.enabled=true,networkPolicy.egress[0].ports[0].port=8080", &["port: 8080", "!- {}"]),
        ),
        (
            "Service",
            "it-litequic-metrics",
            ("metrics.serviceMonitor.enabled=true", &["clusterIP: None", "targetPort: probes"]),
        ),
        (
            "Certificate",
            "a",
            (
                "certificates[0].secretName=a,certificates[0].certManager.issuerRef.name=i,certificates[0].certManager.dnsNames[0]=www.example.com",
                &["secretName: a", "- www.example.com", "name: i"],
            ),
        ),
        ("Deployment", "other", ("fullnameOverride=other", &["name: other"])),
        (
            "Job",
            "it-litequic-check",
            ("commonLabels.team=web,check.enabled=true", &["    team: web\n", "        team: web\n"]),
        ),
        (
            "Service",
            "it-litequic-udp",
            (
                "service.type=LoadBalancer,service.split=true,service.loadBalancerIP=192.0.2.2,service.labels.a=b",
                &["loadBalancerIP: 192.0.2.2", "    a: b\n"],
            ),
        ),
        (
            "PodMonitor",
            name,
            (
                "metrics.podMonitor.enabled=true,metrics.podMonitor.namespace=monitoring,metrics.podMonitor.labels.release=p,\
             metrics.podMonitor.relabelings[0].action=labeldrop",
                &[
                    "  namespace: monitoring\n",
                    "release: p",
                    "matchNames: [there]",
                    "podMetricsEndpoints:\n    - port: probes\n      path: /metrics\n      interval: 30s",
                    "relabelings:\n        - action: labeldrop",
                    "matchLabels:\n      app.kubernetes.io/name: litequic\n      app.kubernetes.io/instance: it",
                ],
            ),
        ),
        (
            "PrometheusRule",
            name,
            (
                "metrics.prometheusRule.enabled=true,metrics.prometheusRule.labels.release=p",
                &["release: p", "alert: LitequicDown", "alert: LitequicErrors", "record: job:litequic_requests:rate5m"],
            ),
        ),
        (
            "PrometheusRule",
            name,
            (
                "metrics.prometheusRule.enabled=true,metrics.prometheusRule.namespace=monitoring,\
             metrics.prometheusRule.disabled[0]=LitequicDown,metrics.prometheusRule.rules[0].alert=Mine,\
             metrics.prometheusRule.rules[0].expr=vector(1)",
                &[
                    "  namespace: monitoring\n",
                    "!alert: LitequicDown",
                    "alert: LitequicErrors",
                    "- name: it-litequic\n      rules:\n      - alert: Mine\n        expr: vector(1)",
                ],
            ),
        ),
        (
            "ConfigMap",
            "it-litequic-rules",
            (
                "metrics.rules.enabled=true,metrics.rules.namespace=monitoring,metrics.rules.labels.rules=p,\
             metrics.rules.annotations.a=b,metrics.prometheusRule.disabled[0]=LitequicDown,\
             metrics.prometheusRule.rules[0].alert=Mine,metrics.prometheusRule.rules[0].expr=vector(1)",
                &[
                    "  namespace: monitoring\n",
                    "    rules: p\n",
                    "annotations:\n    a: b\n",
                    "  it-litequic.yaml: |\n    groups:\n",
                    "!alert: LitequicDown",
                    "alert: LitequicErrors",
                    "record: job:litequic_requests:rate5m",
                    "- name: it-litequic\n      rules:\n      - alert: Mine\n        expr: vector(1)",
                ],
            ),
        ),
        (
            "ConfigMap",
            "it-litequic-dashboard",
            (
                "metrics.dashboard.enabled=true,metrics.dashboard.namespace=monitoring,metrics.dashboard.annotations.grafana_folder=Edge",
                &[
                    "  namespace: monitoring\n",
                    "grafana_dashboard: \"1\"",
                    "grafana_folder: Edge",
                    "  it-litequic.json: |\n    {\n",
                    "\"uid\": \"litequic\"",
                ],
            ),
        ),
    ];
    let of_one = [
        ("Deployment", name, deployment),
        ("HorizontalPodAutoscaler", name, horizontal_pod_autoscaler),
        ("DaemonSet", name, daemon_set),
        ("Service", name, service),
        ("ConfigMap", name, config_map),
        ("PodDisruptionBudget", name, pod_disruption_budget),
        ("ServiceMonitor", name, service_monitor),
        ("Pod", "it-litequic-test", test_pod),
    ];
    let of_one = of_one.into_iter().flat_map(|(kind, name, cases)| cases.iter().map(move |case| (kind, name, *case)));
    for (kind, name, (set, held)) in of_one.chain(others.iter().copied()) {
        let rendered = edge(&helm, set);
        let manifest = manifest(&rendered, kind, name).unwrap_or_else(|| panic!("{set}: no {kind} {name}\n{rendered}"));
        for text in held {
            let (text, wanted) = text.strip_prefix('!').map_or((*text, true), |text| (text, false));
            assert_eq!(manifest.contains(text), wanted, "{set}: {kind} {name}: {text}\n{manifest}");
        }
    }
    for name in ["it-litequic-rules", "it-litequic-dashboard"] {
        assert!(manifest(&edge(&helm, ""), "ConfigMap", name).is_none(), "{name}");
    }
    for (set, kind) in [
        ("podDisruptionBudget.enabled=false", "PodDisruptionBudget"),
        ("serviceAccount.create=false", "ServiceAccount"),
        ("", "NetworkPolicy"),
        ("", "HorizontalPodAutoscaler"),
        ("", "ServiceMonitor"),
        ("", "PodMonitor"),
        ("", "PrometheusRule"),
        ("", "Certificate"),
        ("configMap=mine", "ConfigMap"),
        ("kind=DaemonSet", "Deployment"),
    ] {
        assert!(!edge(&helm, set).contains(&format!("\nkind: {kind}\n")), "{set}: {kind}");
    }
}

#[test]
fn a_secret_that_pods_share_is_mounted_and_named() {
    let Some(helm) = Helm::find() else { return };
    let edge_of = |set: &str| edge(&helm, set);
    let sidecar_of = |set: &str| sidecar(&helm, &set.replace(",", ",litequic-sidecar."));
    type Render<'a> = &'a dyn Fn(&str) -> String;
    let charts: [(Render<'_>, &str); 2] = [(&edge_of, "it-litequic"), (&sidecar_of, "it")];
    for (render, name) in charts {
        let rendered = render("secret.existingSecret=shared,secret.key=k");
        let config = configuration(&rendered);
        assert_eq!(config.listen.secret_file.as_deref(), Some(Path::new("/etc/litequic/secret/secret")));
        let pod = manifest(&rendered, "Deployment", name).unwrap();
        for text in [
            "{name: litequic-secret, mountPath: /etc/litequic/secret, readOnly: true}",
            "secretName: shared\n",
            "- {key: k, path: secret}",
        ] {
            assert!(pod.contains(text), "{text}\n{pod}");
        }
        let without = render("");
        assert_eq!(configuration(&without).listen.secret_file, None);
        assert!(!without.contains("litequic-secret") && !without.contains("/etc/litequic/secret"), "{without}");
        assert_ne!(restart(&rendered), restart(&without));
    }
    // The Job of `check` reads it too.
    let job = edge_of("secret.existingSecret=shared,check.enabled=true");
    let job = manifest(&job, "Job", "it-litequic-check").unwrap();
    assert!(job.contains("mountPath: /etc/litequic/secret") && job.contains("secretName: shared\n"), "{job}");
}

/// `set` with a host whose certificate litequic obtains, and no others.
fn obtaining(helm: &Helm, chart: &str, prefix: &str, set: &str) -> String {
    let folder = format!("{prefix}config.acme[0].folder=/var/lib/litequic/acme");
    let acme = format!("{folder},{prefix}config.acme[0].hosts[0]=a.test,{prefix}config.acme[0].terms_agreed=true");
    let (set, none) = (format!("{acme},{set}"), format!("{prefix}certificates=[]"));
    helm.rendered(chart, &["--set", &set, "--set-json", &none])
}

#[test]
fn certificates_that_litequic_obtains_are_in_a_claim() {
    let Some(helm) = Helm::find() else { return };
    let edge_of = |set: &str| obtaining(&helm, "litequic", "", &format!("{ORIGIN},{set}"));
    let sidecar_of = |set: &str| {
        let set = set.replace("acmeVolume", "litequic-sidecar.acmeVolume").replace("check", "litequic-sidecar.check");
        obtaining(&helm, "examples/application", "litequic-sidecar.", &set)
    };
    type Render<'a> = &'a dyn Fn(&str) -> String;
    let charts: [(Render<'_>, &str, &str); 2] =
        [(&edge_of, "it-litequic", "it-litequic-acme"), (&sidecar_of, "it", "it-litequic-acme")];
    for (render, name, claim) in charts {
        let rendered =
            render("acmeVolume.enabled=true,acmeVolume.size=1Gi,acmeVolume.storageClass=nfs,check.enabled=true");
        let config = configuration(&rendered);
        assert!(config.certificates.is_empty() && config.acme[0].hosts.len() == 1, "{rendered}");
        let made = manifest(&rendered, "PersistentVolumeClaim", claim).unwrap();
        for text in ["helm.sh/resource-policy: keep", "- ReadWriteMany", "storageClassName: nfs", "storage: 1Gi"] {
            assert!(made.contains(text), "{text}\n{made}");
        }
        let pod = manifest(&rendered, "Deployment", name).unwrap();
        for text in ["{name: litequic-acme, mountPath: /var/lib/litequic}", &format!("claimName: {claim}}}")] {
            assert!(pod.contains(text), "{text}\n{pod}");
        }
        assert!(!pod.contains("litequic-tls"), "{pod}");
        // Before an install there is no claim.
        let job = manifest(&rendered, "Job", "it-litequic-check").unwrap();
        assert!(job.contains("emptyDir: {}") && !job.contains("claimName"), "{job}");
        let own = render("acmeVolume.existingClaim=mine");
        assert!(manifest(&own, "Deployment", name).unwrap().contains("claimName: mine}"), "{own}");
        assert!(!own.contains("kind: PersistentVolumeClaim"), "{own}");
    }
    let rendered = edge_of("acmeVolume.enabled=true");
    let pod = manifest(&rendered, "Deployment", "it-litequic").unwrap();
    assert!(pod.contains("fsGroup: 65532") && pod.contains("maxSurge: 1"), "{pod}");
    assert!(manifest(&rendered, "Pod", "it-litequic-test").unwrap().contains("https://a.test:443/"), "{rendered}");
    // A pod of another node cannot have a volume of this one.
    let alone = edge_of("acmeVolume.enabled=true,acmeVolume.accessModes[0]=ReadWriteOnce,replicas=1");
    assert!(manifest(&alone, "Deployment", "it-litequic").unwrap().contains("maxSurge: 0"), "{alone}");
    assert!(!edge(&helm, "").contains("acme"));
    let acme =
        "config.acme[0].hosts[0]=a.test,config.acme[0].terms_agreed=true,config.acme[0].folder=/var/lib/litequic/acme";
    for (set, said) in [
        (ORIGIN.to_owned(), "certificates: without one, and without config.acme"),
        (
            format!("{ORIGIN},{acme},acmeVolume.enabled=true,test.ca=ca.crt"),
            "test.ca: is a key of the first certificate's Secret",
        ),
    ] {
        let output = helm.template("litequic", &["--set", &set, "--set-json", "certificates=[]"]);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && stderr.contains(said), "{set}: {stderr}");
    }
}

/// The AWS controller injects its variable unless the container has it already, with whichever value.
#[test]
fn the_pod_has_its_address_and_no_injected_variable_in_env() {
    let Some(helm) = Helm::find() else { return };
    let edge_of = |set: &str| edge(&helm, set);
    let sidecar_of = |set: &str| sidecar(&helm, &set.replace(",", ",litequic-sidecar."));
    type Render<'a> = &'a dyn Fn(&str) -> String;
    let charts: [(Render<'_>, &str); 2] = [(&edge_of, "it-litequic"), (&sidecar_of, "it")];
    for (render, name) in charts {
        let injected = "config.listen.server_id.id=${AWS_LBC_QUIC_SERVER_ID},injectedEnv[0]=AWS_LBC_QUIC_SERVER_ID";
        let rendered = render(injected);
        let server_id = |rendered: &str| configuration(rendered).listen.server_id.unwrap();
        assert_eq!(server_id(&rendered).describe_layout(), "16 bytes: rotation 0, server ID 8, nonce 7, no key");
        let pod = manifest(&rendered, "Deployment", name).unwrap();
        assert!(!pod.contains("AWS_LBC_QUIC_SERVER_ID"), "{pod}");

        let address = "config.listen.server_id.id=${POD_IP},podIP=true";
        let rendered = render(address);
        assert_eq!(server_id(&rendered).hex_digits(), "0x0a010203");
        let field = "- {name: POD_IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}";
        assert!(manifest(&rendered, "Deployment", name).unwrap().contains(field), "{rendered}");
        let rotated = render(&address.replace("{POD_IP}", "{POD_IP} rotation=1"));
        assert_eq!(restart(&rendered), restart(&rotated), "a reload follows the rotation");
    }
    // Nothing is injected into the Job of `check`.
    let job = edge_of(
        "config.listen.server_id.id=${AWS_LBC_QUIC_SERVER_ID},injectedEnv[0]=AWS_LBC_QUIC_SERVER_ID,podIP=true,check.enabled=true",
    );
    let job = manifest(&job, "Job", "it-litequic-check").unwrap();
    assert!(job.contains("name: AWS_LBC_QUIC_SERVER_ID\n") && job.contains("value: AAAAAAAAAAA=\n"), "{job}");
    assert!(job.contains("fieldPath: status.podIP"), "{job}");
    let twice = "config.origin.url=http://web,injectedEnv[0]=A,env[0].name=A,env[0].value=b";
    let refused = helm.template("litequic", &["--set", twice]);
    let stderr = String::from_utf8_lossy(&refused.stderr);
    assert!(stderr.contains("injectedEnv: A is in env too"), "{stderr}");
}

#[test]
fn the_notes_say_what_several_pods_lose_without_a_secret() {
    let Some(helm) = Helm::find() else { return };
    // `helm template` shows no notes.
    let templates = helm.folder.path().join("helm/litequic/templates");
    let notes = fs::read_to_string(templates.join("NOTES.txt")).unwrap();
    let shown = format!(
        "{{{{- define \"notes\" -}}}}{notes}{{{{- end -}}}}\nkind: Notes\ntext: {{{{ include \"notes\" . | quote }}}}\n"
    );
    fs::write(templates.join("notes.yaml"), shown).unwrap();
    for (set, said) in [
        ("", true),
        ("replicas=1", false),
        ("replicas=1,autoscaling.enabled=true", true),
        ("kind=DaemonSet", true),
        ("secret.existingSecret=shared", false),
        ("config.listen.secret_file=/secrets/shared", false),
        // What is in it the chart does not know.
        ("configMap=mine", false),
    ] {
        let rendered = edge(&helm, set);
        let (_, notes) = rendered.split_once("kind: Notes\n").unwrap();
        assert_eq!(notes.contains("Without secret.existingSecret the pods share no secret"), said, "{set}: {notes}");
    }
}

#[test]
fn further_manifests_are_rendered_as_objects_and_as_text() {
    let Some(helm) = Helm::find() else { return };
    let values = helm.folder.path().join("values.yaml");
    let objects = r#"
config: {origin: {url: "http://web:8080"}}
extraObjects:
  - apiVersion: v1
    kind: Secret
    metadata: {name: "object-of-{{ .Release.Name }}"}
  - |
    apiVersion: v1
    kind: Secret
    metadata:
      name: {{ include "edge.fullname" . }}-text
"#;
    fs::write(&values, objects).unwrap();
    let rendered = helm.rendered("litequic", &["--values", values.to_str().unwrap()]);
    for name in ["object-of-it", "it-litequic-text"] {
        assert!(manifest(&rendered, "Secret", name).is_some(), "{name}\n{rendered}");
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
        "- ctl\n                - drain\n                - --admin\n                - 127.0.0.1:9443\n",
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
    let set = "lifecycle.postStart.sleep.seconds=1,litequic-sidecar.envFrom[0].configMapRef.name=c";
    let more = self::sidecar(&helm, set);
    for text in
        ["postStart:\n              sleep:", "preStop:\n              exec:", "configMapRef:\n                name: c"]
    {
        assert!(more.contains(text), "{text}\n{more}");
    }
    let replaced = self::sidecar(&helm, "lifecycle.preStop.sleep.seconds=1");
    assert!(!replaced.contains("- drain"), "{replaced}");
    // What takes longest counts.
    let patient = self::sidecar(&helm, "drain.originSeconds=120");
    assert!(patient.contains("terminationGracePeriodSeconds: 130"), "{patient}");
}

#[test]
fn a_seccomp_profile_of_the_nodes_replaces_the_runtimes() {
    let Some(helm) = Helm::find() else { return };
    let profile = |context: &str| {
        format!("{context}.type=Localhost,{context}.localhostProfile=profiles/litequic.json,check.enabled=true")
    };
    let of_container = profile("securityContext.seccompProfile").replace(',', ",litequic-sidecar.");
    // Of the edge chart the pods of litequic, of the check and of the test; of the sidecar its container and the check's.
    for (rendered, expected) in
        [(edge(&helm, &profile("podSecurityContext.seccompProfile")), 3), (sidecar(&helm, &of_container), 2)]
    {
        let lines: Vec<_> = rendered.lines().map(str::trim).collect();
        let wanted = ["seccompProfile:", "localhostProfile: profiles/litequic.json", "type: Localhost"];
        assert_eq!(lines.windows(3).filter(|lines| *lines == wanted).count(), expected, "{rendered}");
        // What `restricted` requires further stays.
        assert!(lines.contains(&"readOnlyRootFilesystem: true"), "{rendered}");
    }
}

#[test]
fn the_sidecars_metrics_are_scraped_like_the_edge_charts() {
    let Some(helm) = Helm::find() else { return };
    let set = "metrics.podMonitor.enabled=true,litequic-sidecar.metrics.podMonitor.selector.app=it,\
               litequic-sidecar.metrics.prometheusRule.enabled=true,litequic-sidecar.metrics.rules.enabled=true,\
               litequic-sidecar.metrics.dashboard.enabled=true,\
               litequic-sidecar.commonLabels.team=web";
    let rendered = sidecar(&helm, set);
    let monitor = manifest(&rendered, "PodMonitor", "it-litequic").unwrap();
    assert!(monitor.contains("matchLabels:\n      app: it\n") && monitor.contains("    team: web\n"), "{monitor}");
    let rule = manifest(&rendered, "PrometheusRule", "it-litequic").unwrap();
    let dashboard = manifest(&rendered, "ConfigMap", "it-litequic-dashboard").unwrap();
    assert!(rule.contains("alert: LitequicErrors") && dashboard.contains("  it-litequic.json: |\n    {\n"));
    // The edge chart has the same.
    let edge = edge(&helm, "metrics.prometheusRule.enabled=true,metrics.rules.enabled=true");
    let file =
        |rendered: &str| file_in(manifest(rendered, "ConfigMap", "it-litequic-rules").unwrap(), "it-litequic.yaml");
    assert_eq!(file(&rendered), file(&edge));
    let groups = |rule: &str| rule.split_once("\n  groups:\n").unwrap().1.trim_end().to_owned();
    assert_eq!(groups(rule), groups(manifest(&edge, "PrometheusRule", "it-litequic").unwrap()));
}

/// `litequic ctl` in a container finds address and token by itself, and so does the drain's `preStop`.
#[test]
fn ctl_in_a_container_needs_no_option() {
    let Some(helm) = Helm::find() else { return };
    let table: &[(&str, &[&str])] = &[
        ("", &["{name: LITEQUIC_ADMIN, value: \"127.0.0.1:9443\"}", "!LITEQUIC_ADMIN_TOKEN"]),
        ("ports.admin=9000", &["{name: LITEQUIC_ADMIN, value: \"127.0.0.1:9000\"}"]),
        ("config.admin.token_file=/run/token", &["{name: LITEQUIC_ADMIN_TOKEN_FILE, value: \"/run/token\"}"]),
        // After what it names: that is when Kubernetes expands it.
        (
            "config.admin.token_file=${DIR}/token,P.env[0].name=DIR,P.env[0].value=/run",
            &[
                "name: DIR\n              value: /run\n            - {name: LITEQUIC_ADMIN, ",
                "value: \"$(DIR)/token\"}",
            ],
        ),
        // Set by the user.
        ("P.env[0].name=LITEQUIC_ADMIN,P.env[0].value=[::1]:9443", &["!127.0.0.1:9443\"}"]),
    ];
    for (set, held) in table {
        for beside in [false, true] {
            let rendered = if beside {
                let set = set.strip_prefix("P.").unwrap_or(set);
                sidecar(&helm, &set.replace("P.", "litequic-sidecar."))
            } else {
                edge(&helm, &set.replace("P.", ""))
            };
            for text in *held {
                let (text, wanted) = text.strip_prefix('!').map_or((*text, true), |text| (text, false));
                assert_eq!(rendered.contains(text), wanted, "{set}: {text}\n{rendered}");
            }
        }
    }
}

/// The annotation that changes a pod's template.
fn restart(rendered: &str) -> &str {
    rendered.split_once("litequic/restart: ").unwrap().1.split_once('\n').unwrap().0
}

#[test]
fn a_pod_restarts_only_for_changes_that_a_reload_cannot_apply() {
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
    let edge = [
        ("replicas=two", "'/replicas'"),
        ("service.nodePrt=1", "'nodePrt' not allowed"),
        ("config.listen.wokers=2", "'wokers' not allowed"),
        ("config.listen.udp=x", "'udp' not allowed"),
        ("config.limits.max_headers=many", "'/config/limits/max_headers'"),
        ("kind=StatefulSet", "'/kind'"),
        ("certificates[0].secretName=Not_a_name", "'/certificates/0/secretName'"),
        ("certificates=null", "certificates"),
        (
            "config.acme[0].hosts[0]=a.test,config.acme[0].terms_agreed=true,config.acme[0].folder=/var/lib/litequic/acme",
            "config.acme[0].folder = \"/var/lib/litequic/acme\": is in no volume; expected acmeVolume.enabled or",
        ),
        (
            "acmeVolume.enabled=true,config.acme[0].hosts[0]=a.test,config.acme[0].terms_agreed=true,config.acme[0].folder=/state",
            "config.acme[0].folder = \"/state\": is in no volume; expected a folder in /var/lib/litequic",
        ),
        (
            "acmeVolume.enabled=true,acmeVolume.accessModes[0]=ReadWriteOnce",
            "acmeVolume.accessModes: pods on several nodes write the volume",
        ),
        ("acmeVolume.size=1 GB", "'/acmeVolume/size': value must be 'a size such as 1Gi'"),
        ("acmeVolume.accessModes[0]=ReadOnlyMany", "'/acmeVolume/accessModes/0'"),
        ("hostPort=443", "hostPort: two pods of a Deployment"),
        (
            "kind=DaemonSet,hostPort=443,updateStrategy.rollingUpdate.maxSurge=1",
            "updateStrategy.rollingUpdate.maxSurge: with a hostPort or hostNetwork a node has no place for a second pod",
        ),
        (
            "kind=DaemonSet,hostPort=443,updateStrategy.rollingUpdate.maxUnavailable=0",
            "updateStrategy.rollingUpdate: with maxSurge and maxUnavailable of 0 no pod is ever replaced",
        ),
        ("kind=DaemonSet,autoscaling.enabled=true", "autoscaling.enabled: a DaemonSet"),
        ("autoscaling.targetCPU=most", "'/autoscaling/targetCPU'"),
        ("configMap=Not_a_name", "'/configMap'"),
        ("secret.existingSecret=Not_a_name", "'/secret/existingSecret'"),
        ("secret.key=a/b", "'/secret/key'"),
        (
            "secret.existingSecret=shared,config.listen.secret_file=/a",
            "config.listen.secret_file: secret.existingSecret sets it",
        ),
        ("kind=DaemonSet,hostPort=80,redirect=true", "redirectHostPort: is hostPort already"),
        ("service.type=NodePort", "service.nodePort: a Service of the type NodePort needs one"),
        ("service.nodePort=30443", "service.nodePort: a Service of the type ClusterIP has none"),
        (
            "service.type=LoadBalancer,service.split=true,service.nodePort=30443",
            "service.nodePort: two Services cannot have the same one",
        ),
        ("kind=DaemonSet,hostNetwork=true,hostPort=443", "hostPort: with hostNetwork the pod's ports"),
        (
            "kind=DaemonSet,hostNetwork=true,hostPort=8443,redirect=true",
            "redirectHostPort: with hostNetwork the pod's ports",
        ),
        ("hostNetwork=true", "hostNetwork: two pods of a Deployment"),
        ("autoscaling.enabled=true,autoscaling.targetCPU=null", "autoscaling.enabled: without a metric"),
        ("service.clusterIP=None,service.type=LoadBalancer", "service.clusterIP: None is of the type"),
        (
            "service.type=LoadBalancer,service.split=true,service.clusterIP=10.96.0.9",
            "service.clusterIP: two Services cannot have the same one",
        ),
        ("service.healthCheckNodePort=30900", "service.healthCheckNodePort: is of the type LoadBalancer"),
        (
            "service.type=LoadBalancer,service.split=true,service.healthCheckNodePort=30900",
            "service.healthCheckNodePort: two Services",
        ),
        (
            "metrics.serviceMonitor.enabled=true,metrics.podMonitor.enabled=true",
            "metrics.podMonitor.enabled: metrics.serviceMonitor has every pod scraped already",
        ),
        ("commonLabels.app\\.kubernetes\\.io/name=a", "invalid propertyName 'app.kubernetes.io/name'"),
        ("dnsPolicy=Sometimes", "'/dnsPolicy'"),
        ("imagePullSecrets[0].names=a", "'/imagePullSecrets/0'"),
        ("livenessProbe.httpGet.path=/", "'httpGet' not allowed"),
    ];
    let beside = [
        ("litequic-sidecar.metrics.podMonitor.enabled=true", "litequic-sidecar.metrics.podMonitor.selector: missing"),
        ("litequic-sidecar.drain.secnds=1", "'secnds' not allowed"),
        ("litequic-sidecar.config.origin.urls=1", "'urls' not allowed"),
    ];
    let without_origin = ("replicas=1".to_owned(), "where do requests go? Set config.origin.url");
    let edge = edge.map(|(set, said)| (format!("{ORIGIN},{set}"), said));
    let edge = edge.into_iter().chain([without_origin]).map(|case| ("litequic", case));
    let beside = beside.map(|(set, said)| ("examples/application", (set.to_owned(), said)));
    for (chart, (set, said)) in edge.chain(beside) {
        let output = helm.template(chart, &["--set", &set]);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && stderr.contains(said), "{set}: {stderr}");
    }
    let old = helm.run(&["template", "it", "helm/litequic", "--set", ORIGIN, "--kube-version", "1.28.0"]);
    assert!(String::from_utf8_lossy(&old.stderr).contains("kubeVersion: >=1.29.0"), "{old:?}");
}
