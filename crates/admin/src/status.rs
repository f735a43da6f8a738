//! `/status`: the current state of litequic, as JSON, for the status page, `litequic ctl` and programs. Counters are
//! totals; for rates a client requests it twice.
//!
//! The types are the contract: litequic writes and `litequic ctl` reads them, and the status page reads the same names.

use super::objects::{Lenient, Nullable, Samples, deserialize_lenient, objects};
use litequic_base::lifecycle::ProcessPhase;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

objects! {
    /// The whole answer.
    Status {
        /// Version of the program.
        version: Option<String>,
        /// When the answer was made, in seconds since the Unix epoch.
        time: Option<f64>,
        /// Seconds since the process serves.
        uptime: Option<f64>,
        /// Phase of the process.
        phase: Option<ProcessPhase>,
        /// What is wrong, in one line each, the most urgent first.
        problems: Vec<String>,
        /// Generation of the process in the sequence of hot upgrades.
        generation: Option<u64>,
        /// Processes of earlier generations that drain.
        older_processes: Option<u64>,
        /// UDP addresses.
        listen: Vec<String>,
        /// Workers, by their index.
        workers: Vec<WorkerStatus>,
        /// The process, by the kernel.
        process: ProcessStatus,
        /// What surrounds the process.
        confinement: ConfinementStatus,
        /// Memory, by litequic's own account.
        memory: MemoryStatus,
        /// File descriptors.
        descriptors: DescriptorStatus,
        /// Whether HTTP/3 is served.
        http3: Http3Status,
        /// Server ID of new connection IDs; null without `[listen.server_id]`.
        server_id: Nullable<ServerIdStatus>,
        /// The collector of traces; null without `[traces]`.
        traces: Nullable<TracesStatus>,
        /// Routes that are in maintenance.
        maintenance: Vec<MaintenanceStatus>,
        /// Networks whose clients are denied.
        denied_networks: Option<u64>,
        /// Servers of the origins.
        origins: Vec<OriginStatus>,
        /// Certificates in use.
        certificates: Vec<CertificateStatus>,
        /// Hosts whose certificates litequic obtains; null without `[[acme]]`.
        acme: Option<Vec<AcmeStatus>>,
        /// The configuration in force.
        configuration: ConfigurationStatus,
        /// Outcome of the last reload; null before the first.
        last_reload: Nullable<ReloadStatus>,
        /// What each mechanism of litequic has saved.
        mechanisms: Vec<MechanismStatus>,
        /// Counters and gauges, by their names in `/metrics` with their labels.
        metrics: Option<Samples>,
    }

    /// A worker.
    WorkerStatus {
        /// Index of the worker.
        worker: Option<u64>,
        /// Seconds since the last turn of its loop.
        seconds_since_turn: Option<f64>,
        /// Whether it waits for events.
        idle: Option<bool>,
    }

    /// The process, by the kernel.
    ProcessStatus {
        /// User and system time of all threads, in seconds.
        cpu_seconds: Option<f64>,
        /// Bytes of memory that are in RAM.
        resident_bytes: Option<u64>,
        /// When the process started, in seconds since the Unix epoch.
        started: Option<f64>,
        /// File descriptors that are open.
        open_files: Option<u64>,
        /// File descriptors that may be open: RLIMIT_NOFILE.
        open_files_limit: Option<u64>,
    }

    /// What surrounds the process.
    ConfinementStatus {
        /// Number of the effective user.
        user: Option<u64>,
        /// Effective capabilities: `none`, their names, `all`, or `all but` and names.
        capabilities: Option<String>,
        /// Whether execve(2) grants no privileges.
        no_new_privileges: Option<bool>,
        /// Mode of seccomp(2): `off`, `strict` or `filter`.
        seccomp: Option<String>,
        /// Whether the file system at `/` is mounted read-only.
        read_only_root: Option<bool>,
        /// Whether a signal may write the memory to a core dump.
        core_dumps: Option<bool>,
    }

    /// Memory, by litequic's own account.
    MemoryStatus {
        /// The measure against a shortage that is in force, or `normal`.
        step: Option<String>,
        /// Bytes in use.
        used: Option<u64>,
        /// `limits.memory` or the cgroup's limit, in bytes; 0 without.
        limit: Option<u64>,
    }

    /// File descriptors, and what follows from their limit.
    DescriptorStatus {
        /// Descriptors that the process may have.
        limit: Option<u64>,
        /// Descriptors that are not for connections.
        fixed: Option<u64>,
        /// Connections from clients.
        clients: DescriptorSideStatus,
        /// Connections to origins.
        origins: DescriptorSideStatus,
        /// Keys whose values follow from the limit.
        derived: DerivedStatus,
    }

    /// File descriptors of connections on one side.
    DescriptorSideStatus {
        /// Descriptors in use.
        open: Option<u64>,
        /// Descriptors that the other side cannot have.
        reserved: Option<u64>,
        /// Descriptors that the side may have at most.
        most: Option<u64>,
    }

    /// Keys whose values follow from the limit of file descriptors.
    DerivedStatus {
        /// `origin.max_connections`, of each worker.
        #[serde(rename = "origin.max_connections")]
        max_connections: Option<u64>,
        /// `origin.max_queue`, of each worker.
        #[serde(rename = "origin.max_queue")]
        max_queue: Option<u64>,
    }

    /// Whether HTTP/3 is served.
    Http3Status {
        /// Whether it is served now.
        on: Option<bool>,
        /// Whether it is served by the configuration.
        configured: Option<bool>,
    }

    /// The server ID of new connection IDs.
    ServerIdStatus {
        /// The server ID, in hexadecimal.
        id: Option<String>,
        /// Layout of the connection IDs, in the words of QUIC-LB.
        layout: Option<String>,
        /// Until when connection IDs from before a reload are valid, in seconds since the Unix epoch; null without any.
        former_until: Option<u64>,
    }

    /// The collector of traces.
    TracesStatus {
        /// URL of the collector.
        endpoint: Option<String>,
        /// When it accepted spans last, in seconds since the Unix epoch; null if it has not yet.
        accepted_at: Nullable<u64>,
        /// Why it did not accept the last spans, or not all; null if it did.
        problem: Nullable<String>,
    }

    /// Routes that an operator switched to maintenance in one order.
    MaintenanceStatus {
        /// Name of a route, or a host; null for all routes.
        target: Nullable<String>,
        /// `Retry-After` for clients, in seconds.
        retry_after: Option<u64>,
        /// Names of the routes.
        routes: Vec<String>,
    }

    /// A server of an origin.
    OriginStatus {
        /// Name of the origin.
        name: Option<String>,
        /// URL of the server.
        address: Option<String>,
        /// Whether it has health checks.
        checked: Option<bool>,
        /// Why it cannot serve; null if it can.
        problem: Nullable<String>,
        /// Workers that have ejected it.
        ejected_by: Option<u64>,
        /// Connections that are open.
        connections: Option<u64>,
        /// Requests that were sent.
        requests: Option<u64>,
        /// Requests that failed.
        failures: Option<u64>,
    }

    /// A certificate in use.
    CertificateStatus {
        /// DNS names and IP addresses.
        names: Vec<String>,
        /// Algorithm of the key.
        algorithm: Option<String>,
        /// Beginning of its validity, in seconds since the Unix epoch.
        valid_from: Option<u64>,
        /// When it should have been renewed, in seconds since the Unix epoch.
        renew_by: Option<u64>,
        /// End of its validity, in seconds since the Unix epoch.
        expires: Option<u64>,
        /// What is wrong with it.
        warnings: Vec<String>,
    }

    /// A host whose certificate litequic obtains.
    AcmeStatus {
        /// Name of the host.
        host: Option<String>,
        /// State of the certificate: `valid`, `due` or `missing`.
        state: Option<String>,
        /// Beginning of the certificate's validity, in seconds since the Unix epoch; null without one.
        valid_from: Option<u64>,
        /// End of the certificate's validity, in seconds since the Unix epoch; null without one.
        expires: Option<u64>,
        /// Directory of the CA.
        directory: Option<String>,
        /// When the next step is taken, in seconds since the Unix epoch.
        next: Option<u64>,
        /// Whether the next step continues an order.
        resumes: Option<bool>,
        /// Orders that failed in succession, and the one that runs.
        attempts: Option<u64>,
        /// Since when orders fail, in seconds since the Unix epoch; null if they do not.
        failing_since: Option<u64>,
        /// Why the last order failed; null if it did not.
        problem: Option<String>,
        /// The TXT record that the operator has to set; null without one.
        record: Option<String>,
    }

    /// The configuration in force. Times are in seconds since the Unix epoch, 0 for never.
    ConfigurationStatus {
        /// Digest of the configuration.
        version: Option<String>,
        /// When it was read.
        read: Option<u64>,
        /// Reloads that were applied.
        reloads: Option<u64>,
        /// When the last one was.
        reloaded_at: Option<u64>,
        /// Reloads that were rejected.
        refused: Option<u64>,
        /// When the last one was.
        refused_at: Option<u64>,
        /// Since when the file is one that was rejected.
        refused_since: Option<u64>,
        /// When certificates or error pages were renewed last.
        renewed_at: Option<u64>,
    }

    /// Outcome of a reload.
    ReloadStatus {
        /// When it was, in seconds since the Unix epoch.
        at: Option<u64>,
        /// What ordered it.
        by: Option<String>,
        /// `ok` or `refused`.
        result: Option<String>,
        /// The first changes or faults.
        lines: Vec<String>,
        /// Changes or faults beyond those.
        left_out: Option<u64>,
    }

    /// A mechanism of litequic.
    MechanismStatus {
        /// Name of the mechanism.
        name: Option<String>,
        /// `on`, `off`, or what serves instead.
        state: Option<String>,
        /// What it saves.
        saved: Option<String>,
        /// How many of them.
        count: Option<u64>,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn recorded(name: &str) -> Json {
        let path = format!("{}/../../tests/fixtures/status/{name}.json", env!("CARGO_MANIFEST_DIR"));
        serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
    }

    /// `complete.json` has every member; a change of it changes what programs read.
    #[test]
    fn a_complete_answer_is_read_and_written_as_recorded() {
        let answer = recorded("complete");
        let status: Status = serde_json::from_value(answer.clone()).unwrap();
        assert_eq!(serde_json::to_value(&status).unwrap(), answer);
        let is_known = |text: &str| !text.contains("None") && !text.contains("Unknown") && !text.contains("[]");
        let shown = format!("{status:?}");
        assert!(is_known(&shown), "complete.json has every member: {shown}");
    }

    #[test]
    fn answers_of_other_versions_keep_their_members() {
        for name in ["older", "busy-before", "busy", "trouble"] {
            let answer = recorded(name);
            let status: Status = serde_json::from_value(answer.clone()).unwrap();
            let again = serde_json::to_value(&status).unwrap();
            for (key, value) in answer.as_object().unwrap() {
                // Objects of a list have members that are null now, or that are no longer there.
                if !matches!(key.as_str(), "mechanisms" | "certificates" | "workers" | "process") {
                    assert_eq!(again[key], *value, "{key} of {name}");
                }
            }
        }
    }

    #[test]
    fn a_value_of_another_kind_is_unknown_and_leaves_the_others() {
        let status: Status = serde_json::from_str(
            r#"{"version": 7, "phase": "dancing", "time": 5, "workers": [1, {"worker": 3, "idle": "no"}],
                "problems": ["a", {}], "memory": [], "last_reload": 1, "younger": {"a": null},
                "maintenance": [{"target": null}, {"target": 1}, {"target": "shop"}, {}],
                "metrics": {"a": 1, "b": -1, "c": "x"}}"#,
        )
        .unwrap();
        let worker = |worker| WorkerStatus { worker, ..WorkerStatus::default() };
        let target = |target| MaintenanceStatus { target, ..MaintenanceStatus::default() };
        let expected = Status {
            time: Some(5.0),
            workers: vec![worker(None), worker(Some(3))],
            problems: vec!["a".into(), String::new()],
            maintenance: vec![
                target(Nullable::Null),
                target(Nullable::Unknown),
                target(Nullable::Value("shop".into())),
                target(Nullable::Unknown),
            ],
            metrics: Some(Samples([("a".to_owned(), 1)].into())),
            ..Status::default()
        };
        assert_eq!(status, expected);
    }
}
