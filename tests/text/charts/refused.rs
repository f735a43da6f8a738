//! What `litequic check` refuses, `helm install` refuses: by the schema, whose patterns come from the keys, or by a
//! template that looks at what is wrong between them. What neither can say is named here, and left to the Job of
//! `check.enabled`.

use super::{
    ROOT,
    rendered::{Helm, configuration, manifest, sidecar},
};
use serde_json::{Value as Json, json};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// Fixtures that `check` refuses and `helm` does not, and why.
const NOT_REFUSED: &[(&str, &str)] = &[
    ("addresses", "the chart sets the addresses"),
    ("admin", "the chart sets the address"),
    ("admin-addresses", "the chart sets the addresses"),
    ("apache", "values are not TOML"),
    ("caddyfile", "values are not TOML"),
    ("haproxy", "values are not TOML"),
    ("http3", "the chart sets the addresses, and the schema compares no durations"),
    ("json", "values are not TOML"),
    ("nginx", "values are not TOML"),
    ("no-addresses", "the chart sets the addresses"),
    ("no-certificates", "the chart sets the certificates"),
    ("proxy-flow", "the schema compares no durations, nor one section's key with another's"),
    ("syntax", "values are not TOML"),
    ("taken", "the chart sets the addresses"),
    ("traefik-yaml", "values are not TOML"),
    ("twice", "values are not TOML"),
    ("wrong-types", "no YAML has an integer as large, nor a date as TOML's"),
    ("yaml", "values are not TOML"),
];

/// Keys that the charts set themselves.
const SET: &[&[&str]] = &[
    &["certificates"],
    &["listen", "udp"],
    &["listen", "tcp"],
    &["listen", "redirect"],
    &["listen", "advertised_port"],
    &["timeouts", "drain"],
    &["timeouts", "drain_grace"],
    &["admin", "listen"],
    &["admin", "probes"],
];

/// The file at `path` as values; `None` if it is not TOML.
fn values(path: &Path) -> Option<Json> {
    let table: toml::Table = fs::read_to_string(path).unwrap().parse().ok()?;
    let mut config = serde_json::to_value(table).unwrap();
    for path in SET {
        let (key, sections) = path.split_last().unwrap();
        let section = sections.iter().try_fold(&mut config, |value, key| value.get_mut(key));
        section.and_then(Json::as_object_mut).map(|section| section.remove(*key));
    }
    // Those that a test's environment has.
    let env: Vec<_> = ["PORT", "TLS", "LITEQUIC_ORIGIN"].map(|name| json!({ "name": name, "value": "x" })).into();
    Some(json!({ "config": config, "env": env }))
}

/// The error of `helm template` for the edge chart with `values`; `None` if it accepts them.
fn refusal(helm: &Helm, values: &Json) -> Option<String> {
    let file = helm.folder.path().join("refused.yaml");
    fs::write(&file, values.to_string()).unwrap();
    let output = helm.template("litequic", &["--values", file.to_str().unwrap()]);
    (!output.status.success()).then(|| String::from_utf8(output.stderr).unwrap())
}

fn toml_files(folder: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(Path::new(ROOT).join(folder)).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = entries.filter(|path| path.extension().is_some_and(|end| end == "toml")).collect();
    files.sort();
    assert!(files.len() > 2, "{files:?}");
    files
}

#[test]
fn what_check_refuses_helm_refuses_too() {
    let Some(helm) = Helm::find() else { return };
    let mut not_refused = Vec::new();
    for path in toml_files("tests/fixtures/config/invalid") {
        if values(&path).is_none_or(|values| refusal(&helm, &values).is_none()) {
            not_refused.push(path.file_stem().unwrap().to_str().unwrap().to_owned());
        }
    }
    not_refused.sort();
    let expected: Vec<_> = NOT_REFUSED.iter().map(|(name, _)| *name).collect();
    assert_eq!(not_refused, expected);
}

#[test]
fn what_check_accepts_helm_accepts_too() {
    let Some(helm) = Helm::find() else { return };
    for path in toml_files("tests/fixtures/config/valid").into_iter().chain(toml_files("config")) {
        let values = values(&path).unwrap();
        assert_eq!(refusal(&helm, &values), None, "{}\n{values:#}", path.display());
    }
}

/// One value each, and its error.
#[test]
fn a_value_that_would_fail_in_the_pod_is_refused_at_once() {
    let Some(helm) = Helm::find() else { return };
    let table = [
        ("timeouts.idle=30x", "'/config/timeouts/idle': value must be 'a duration from "),
        ("timeouts.idle=30", "'/config/timeouts/idle'"),
        ("timeouts.idle=0s", "'/config/timeouts/idle': value must be 'a duration from "),
        ("timeouts.request=never", "'/config/timeouts/request'"),
        ("limits.max_header_bytes=32 KX", "'/config/limits/max_header_bytes'"),
        ("limits.max_body_bytes=lots", "'/config/limits/max_body_bytes': value must be 'a size from "),
        ("origin.url=web:80", "'/config/origin/url': value must be '\"http://HOST:PORT\", "),
        ("origin.url=ftp://web", "'/config/origin/url'"),
        ("origins.a.url=http://web/app", "'/config/origins/a/url'"),
        ("origin.health.path=health", "'/config/origin/health/path'"),
        ("origin.health.timeout=1s", "missing property 'path'"),
        ("trusted_proxies[0]=all", "'/config/trusted_proxies'"),
        ("listen.proxy_protocol_from[0]=balancer", "'/config/listen/proxy_protocol_from'"),
        ("listen.secret_file=", "'/config/listen/secret_file'"),
        ("access_log.path=", "'/config/access_log/path'"),
        ("error_pages.200=a.html", "invalid propertyName '200'"),
        ("error_pages.404=a.php", "'/config/error_pages/404'"),
        ("routes[0].host=https://a,R", "'/config/routes/0/host'"),
        ("routes[0].path_prefix=live,R", "'/config/routes/0/path_prefix'"),
        ("routes[0].rewrite_host=a b,R", "'/config/routes/0/rewrite_host'"),
        ("routes[0].upgrade=web socket,R", "'/config/routes/0/upgrade'"),
        ("routes[0].rate_limit=10,R", "'/config/routes/0/rate_limit'"),
        ("routes[0].redirect=www.example.com", "'/config/routes/0/redirect'"),
        ("routes[0].redirect=200 /a", "'/config/routes/0/redirect'"),
        ("routes[0].request_headers.set.a b=c,R", "invalid propertyName 'a b'"),
        (
            "routes[0].origin=nope",
            "config.routes[0].origin = \"nope\": no origin has this name; expected one of origin",
        ),
        ("routes[0].host=a", "config.routes[0].origin: missing"),
        ("routes[0].redirect=/a,R", "config.routes[0].origin: has no effect beside redirect"),
        (
            "routes[0].host=A.,R,routes[1].host=a,routes[1].origin=origin",
            "config.routes[1]: another route has the same",
        ),
        ("routes[0].path=/a,routes[0].path_prefix=/b,R", "config.routes[0].path_prefix: has no effect beside path"),
        (
            "routes[0].path=/a,R,routes[1].path=/a,routes[1].origin=origin",
            "config.routes[1]: another route has the same host and path",
        ),
        (
            "routes[0].name=a,R,routes[1].name=a,routes[1].host=b,routes[1].origin=origin",
            "config.routes[1].name = \"a\": another route has this name",
        ),
        ("routes[0].respond.status=200,R", "config.routes[0].origin: has no effect beside respond"),
        ("routes[0].respond.status=100", "'/config/routes/0/respond/status'"),
        ("routes[0].name=a b,R", "'/config/routes/0/name'"),
        ("routes[0].match.methods={get},R", "'/config/routes/0/match/methods'"),
        ("routes[0].client_certificate=required,R", "config.routes[0].client_certificate: has no effect without"),
        ("routes[0].intercept_errors=true,R", "config.routes[0].intercept_errors: has no effect without an error page"),
        ("routes[0].upgrade={a,A},R", "config.routes[0].upgrade[1] = \"A\": is listed twice"),
        (
            "client_certificates.verify=required",
            "config.client_certificates.verify: has no effect without client_certificates.ca",
        ),
        ("client_certificates.crl=a", "config.client_certificates.crl: has no effect without client_certificates.ca"),
        ("origins.origin.url=http://a", "config.origins.origin: is reserved for [origin]"),
        ("origin.url={http://a,http://A}", "config.origin.url[1] = \"http://A\": is listed twice"),
        ("litequic.io=s2n-quic", "'/config/litequic/io'"),
        ("access_log.fields={time,time}", "config.access_log.fields[1] = \"time\": is listed twice"),
        ("listen.secret_file=${DIR}/secret", "config: environment variable DIR is not set; expected it in env"),
        ("listen.secret_file=${DIR", "`${` without `}`"),
    ];
    for (chart, prefix) in [("litequic", ""), ("examples/application", "litequic-sidecar.")] {
        for (set, said) in table {
            let set = set.replace(",R", ",routes[0].origin=origin");
            let origin = if set.starts_with("origin.url") { "" } else { "origin.url=http://web:8080," };
            // A key begins the list and each part behind a comma that is not within braces.
            let set = format!("{origin}{set}").split(',').fold(String::new(), |all, part| {
                let inside = all.matches('{').count() > all.matches('}').count() + all.matches("${").count();
                let comma = if all.is_empty() { "" } else { "," };
                if inside { format!("{all},{part}") } else { format!("{all}{comma}{prefix}config.{part}") }
            });
            let output = helm.template(chart, &["--set", &set]);
            let stderr = String::from_utf8_lossy(&output.stderr);
            let said = said.replace("'/config/", &format!("'/{}config/", prefix.replace('.', "/")));
            // A schema of a subchart begins anew.
            let sub = said.replace("'/litequic-sidecar/", "'/");
            assert!(!output.status.success(), "{chart} {set}");
            assert!(stderr.contains(&said) || stderr.contains(&sub), "{chart} {set}: {said}\n{stderr}");
        }
        let output = helm.template(chart, &["--set", &format!("{prefix}ports.probes=8443")]);
        assert!(!output.status.success(), "{chart}: ports");
    }
}

#[test]
fn a_variable_of_the_pod_is_judged_where_it_is_known() {
    let Some(helm) = Helm::find() else { return };
    let set = "config.origin.url=http://${HOST}:80,config.listen.secret_file=${DIR}/a,env[0].name=DIR,env[0].value=/a,\
               env[1].name=HOST,env[1].value=b,config.timeouts.idle=${IDLE},env[2].name=IDLE,env[2].value=30s";
    let rendered = helm.rendered("litequic", &["--set", set]);
    assert!(rendered.contains("idle = \"${IDLE}\""), "{rendered}");
}

#[test]
fn a_helm_hook_checks_the_configuration_before_each_change() {
    let Some(helm) = Helm::find() else { return };
    let off = helm.rendered("litequic", &["--set", "config.origin.url=http://web"]);
    assert!(!off.contains("kind: Job"), "{off}");
    let set = "config.origin.url=http://web,check.enabled=true,extraVolumes[0].name=logs,extraVolumes[0].emptyDir.medium=Memory,\
               extraVolumeMounts[0].name=logs,extraVolumeMounts[0].mountPath=/logs,env[0].name=A,env[0].value=b,\
               imagePullSecrets[0]=pull,certificates[0].secretName=tls";
    let rendered = helm.rendered("litequic", &["--set", set]);
    let job = manifest(&rendered, "Job", "it-litequic-check").unwrap();
    for text in [
        "helm.sh/hook: pre-install,pre-upgrade,pre-rollback\n",
        "args: [check, --config, /etc/litequic/config/litequic.toml]",
        "configMap: {name: it-litequic-check}",
        "{key: tls.key, path: tls.key}",
        "mountPath: /logs",
        "emptyDir:\n            medium: Memory",
        "- name: A\n",
        "- name: pull",
        "backoffLimit: 0",
        "runAsNonRoot: true",
        "readOnlyRootFilesystem: true",
    ] {
        assert!(job.contains(text), "{text}\n{job}");
    }
    // The configuration that it checks comes before it, and is the one that is installed.
    let checked = manifest(&rendered, "ConfigMap", "it-litequic-check").unwrap();
    let installed = manifest(&rendered, "ConfigMap", "it-litequic").unwrap();
    assert!(checked.contains("helm.sh/hook-weight: \"-1\""), "{checked}");
    assert_eq!(configuration(checked), configuration(installed));

    // cert-manager writes the Secret after the install.
    let set =
        format!("{set},certificates[0].certManager.issuerRef.name=i,certificates[0].certManager.dnsNames[0]=a.test");
    let rendered = helm.rendered("litequic", &["--set", &set]);
    assert!(
        manifest(&rendered, "Job", "it-litequic-check").unwrap().contains("helm.sh/hook: pre-upgrade,pre-rollback\n")
    );
    let own = helm.rendered("litequic", &["--set", "configMap=mine,check.enabled=true"]);
    assert!(manifest(&own, "Job", "it-litequic-check").unwrap().contains("configMap: {name: mine}"), "{own}");

    let beside = sidecar(&helm, "check.enabled=true,litequic-sidecar.check.extraVolumes[0].name=more");
    let job = manifest(&beside, "Job", "it-litequic-check").unwrap();
    assert!(job.contains("args: [check, --config") && job.contains("- name: more"), "{job}");
}
