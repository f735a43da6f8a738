//! Defines the response to `/status`: the current state of litequic as JSON. Counters are totals; for rates a client
//! requests the resource twice.
//!
//! litequic writes these types, `litequic ctl` and other programs read them, and the status page relies on the same
//! names.

use super::objects::{Lenient, Samples, deserialize_lenient, objects};
use litequic_base::lifecycle::ProcessPhase;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

objects! {
    /// The response to `/status`.
    Status {
        /// Version of the program.
        version: Option<String>,
        /// Time of the response, in seconds since the Unix epoch.
        time: Option<f64>,
        /// Seconds since the process began to serve.
        uptime: Option<f64>,
        /// Phase of the process.
        phase: Option<ProcessPhase>,
        /// Problems, in one line each, the most urgent first.
        problems: Vec<String>,
        /// Generation of the process in the sequence of hot upgrades.
        generation: Option<u64>,
        /// Earlier processes of a hot upgrade that drain.
        older_processes: Option<u64>,
        /// UDP addresses of the listeners.
        listen: Vec<String>,
        /// Workers, by their index.
        workers: Vec<WorkerStatus>,
        /// Resources of the process, as the kernel counts them.
        process: ProcessStatus,
        /// Confinement of the process.
        confinement: ConfinementStatus,
        /// Memory in use, by litequic's own counters.
        memory: MemoryStatus,
        /// File descriptors.
        descriptors: DescriptorStatus,
        /// Whether HTTP/3 is served.
        http3: Http3Status,
        /// Server ID of new connection IDs; null without `[listen.server_id]`.
        server_id: Option<ServerIdStatus>,
        /// The collector of traces; null without `[traces]`.
        traces: Option<TracesStatus>,
        /// Routes in maintenance.
        maintenance: Vec<MaintenanceStatus>,
        /// Denied networks.
        denied_networks: Option<u64>,
        /// Servers of the origins.
        origins: Vec<OriginStatus>,
        /// Certificates in use.
        certificates: Vec<CertificateStatus>,
        /// Hosts whose certificates litequic obtains; null without `[[acme]]`.
        acme: Option<Vec<AcmeStatus>>,
        /// The configuration in force.
        configuration: ConfigurationStatus,
        /// Result of the last reload; null before the first.
        last_reload: Option<ReloadStatus>,
        /// Savings of litequic's mechanisms.
        mechanisms: Vec<MechanismStatus>,
        /// Counters and gauges, by their names in `/metrics` with labels.
        metrics: Option<Samples>,
    }

    /// State of a worker.
    WorkerStatus {
        /// Index of the worker.
        worker: Option<u64>,
        /// Seconds since the last turn of the worker's loop.
        seconds_since_turn: Option<f64>,
        /// Whether the worker waits for events.
        idle: Option<bool>,
    }

    /// Resources of the process, as the kernel counts them.
    ProcessStatus {
        /// Process ID.
        id: Option<u64>,
        /// Name of the effective user, or its ID.
        user: Option<String>,
        /// User and system time of all threads, in seconds.
        cpu_seconds: Option<f64>,
        /// Bytes of memory that are in RAM.
        resident_bytes: Option<u64>,
        /// Start time of the process, in seconds since the Unix epoch.
        started: Option<f64>,
        /// Open file descriptors.
        open_files: Option<u64>,
        /// Limit of open file descriptors: RLIMIT_NOFILE.
        open_files_limit: Option<u64>,
    }

    /// Confinement of the process: its user, privileges and file system.
    ConfinementStatus {
        /// ID of the effective user.
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

    /// Memory in use, by litequic's own counters.
    MemoryStatus {
        /// Measure in force against a shortage, or `normal`.
        step: Option<String>,
        /// Bytes of memory in use.
        used: Option<u64>,
        /// `limits.memory` or the cgroup's limit, in bytes; 0 without a limit.
        limit: Option<u64>,
    }

    /// File descriptors, and values derived from their limit.
    DescriptorStatus {
        /// Descriptors that the process may open.
        limit: Option<u64>,
        /// Descriptors that are not used for connections.
        fixed: Option<u64>,
        /// Descriptors of connections from clients.
        clients: DescriptorSideStatus,
        /// Descriptors of connections to origins.
        origins: DescriptorSideStatus,
        /// Keys whose values are derived from the limit.
        derived: DerivedStatus,
    }

    /// File descriptors of the connections on one side.
    DescriptorSideStatus {
        /// Open descriptors.
        open: Option<u64>,
        /// Descriptors that are reserved for this side.
        reserved: Option<u64>,
        /// Descriptors that this side may open at most.
        most: Option<u64>,
    }

    /// Keys whose values are derived from the limit of file descriptors.
    DerivedStatus {
        /// `origin.max_connections` of each worker.
        #[serde(rename = "origin.max_connections")]
        max_connections: Option<u64>,
        /// `origin.max_queue` of each worker.
        #[serde(rename = "origin.max_queue")]
        max_queue: Option<u64>,
    }

    /// Whether HTTP/3 is served.
    Http3Status {
        /// Whether HTTP/3 is served now.
        on: Option<bool>,
        /// Whether the configuration enables HTTP/3.
        configured: Option<bool>,
    }

    /// The server ID of new connection IDs.
    ServerIdStatus {
        /// The server ID in hexadecimal digits.
        id: Option<String>,
        /// Layout of the connection IDs in the terms of QUIC-LB.
        layout: Option<String>,
        /// Time until which connection IDs from before a reload are valid, in seconds since the Unix epoch; null
        /// without any.
        former_until: Option<u64>,
    }

    /// State of the traces' export.
    TracesStatus {
        /// URL of the collector.
        endpoint: Option<String>,
        /// Time at which the collector last accepted spans, in seconds since the Unix epoch; null before the first
        /// time.
        accepted_at: Option<u64>,
        /// Reason why the collector rejected some of the last spans; null if it accepted all.
        problem: Option<String>,
    }

    /// Routes switched to maintenance by one order.
    MaintenanceStatus {
        /// Name of a route, or a host; null for all routes.
        target: Option<String>,
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
        /// Whether the server has health checks.
        checked: Option<bool>,
        /// Reason why the server cannot serve; null if it can.
        problem: Option<String>,
        /// Number of workers that have ejected the server.
        ejected_by: Option<u64>,
        /// Open connections to the server.
        connections: Option<u64>,
        /// Requests sent to the server.
        requests: Option<u64>,
        /// Failed requests to the server.
        failures: Option<u64>,
    }

    /// A certificate in use.
    CertificateStatus {
        /// DNS names and IP addresses of the certificate.
        names: Vec<String>,
        /// Algorithm of the certificate's key.
        algorithm: Option<String>,
        /// Beginning of the validity, in seconds since the Unix epoch.
        valid_from: Option<u64>,
        /// Latest time of a timely renewal, in seconds since the Unix epoch.
        renew_by: Option<u64>,
        /// End of the validity, in seconds since the Unix epoch.
        expires: Option<u64>,
        /// Warnings about the certificate.
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
        /// Time of the next step, in seconds since the Unix epoch.
        next: Option<u64>,
        /// Whether the next step continues an order.
        resumes: Option<bool>,
        /// Consecutive failed orders, and the running one.
        attempts: Option<u64>,
        /// Time of the first of these failures, in seconds since the Unix epoch; null without failures.
        failing_since: Option<u64>,
        /// Reason why the last order failed; null if it succeeded.
        problem: Option<String>,
        /// TXT record that the operator has to set; null without one.
        record: Option<String>,
    }

    /// The configuration in force. Times are in seconds since the Unix epoch, 0 for never.
    ConfigurationStatus {
        /// Path of the file, or `the command line`.
        file: Option<String>,
        /// Version of the configuration: a digest of its values.
        version: Option<String>,
        /// Time at which the configuration was read.
        read: Option<u64>,
        /// Applied reloads.
        reloads: Option<u64>,
        /// Time of the last applied reload.
        reloaded_at: Option<u64>,
        /// Rejected reloads.
        refused: Option<u64>,
        /// Time of the last rejected reload.
        refused_at: Option<u64>,
        /// Time since which the file has been an invalid one.
        refused_since: Option<u64>,
        /// Time of the last renewal of certificates or error pages.
        renewed_at: Option<u64>,
    }

    /// Result of a reload.
    ReloadStatus {
        /// Time of the reload, in seconds since the Unix epoch.
        at: Option<u64>,
        /// Trigger of the reload.
        by: Option<String>,
        /// Outcome: `ok` or `refused`.
        result: Option<String>,
        /// The first changes or faults.
        lines: Vec<String>,
        /// Number of further changes or faults.
        left_out: Option<u64>,
    }

    /// Savings of a mechanism of litequic.
    MechanismStatus {
        /// Name of the mechanism.
        name: Option<String>,
        /// State: `on`, `off`, or the replacement in use.
        state: Option<String>,
        /// Operation that the mechanism saves.
        saved: Option<String>,
        /// Number of saved operations.
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

    /// A change of `complete.json`, which has every member, changes the interface for programs.
    #[test]
    fn a_complete_answer_is_read_and_written_as_recorded() {
        let answer = recorded("complete");
        let status: Status = serde_json::from_value(answer.clone()).unwrap();
        assert_eq!(serde_json::to_value(&status).unwrap(), answer);
        let (shown, written) = (format!("{status:?}"), answer.to_string());
        let is_complete = shown.matches("None").count() == written.matches("null").count() && !shown.contains("[]");
        assert!(is_complete, "complete.json has every member: {shown}");
    }

    #[test]
    fn answers_of_other_versions_keep_their_members() {
        for name in ["older", "busy-before", "busy", "trouble"] {
            let answer = recorded(name);
            let status: Status = serde_json::from_value(answer.clone()).unwrap();
            let again = serde_json::to_value(&status).unwrap();
            for (key, value) in answer.as_object().unwrap() {
                // Objects in lists have members that are null or missing here.
                if !matches!(key.as_str(), "mechanisms" | "certificates" | "workers" | "process" | "configuration") {
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
            maintenance: vec![target(None), target(None), target(Some("shop".into())), target(None)],
            metrics: Some(Samples([("a".to_owned(), 1)].into())),
            ..Status::default()
        };
        assert_eq!(status, expected);
    }
}
