//! Metrics of certificates that litequic obtains. Only the control thread writes them.

use litequic_telemetry::{Counter, Gauge, metrics};

metrics! {
    /// Metrics of all `[[acme]]` tables.
    pub struct AcmeMetrics {
        Counter("acme_orders", "ACME orders that ended, by result.") {
            orders_issued [result: "issued"],
            orders_failed [result: "failed"] "The log and `/status` have the reason in the CA's words.",
        }
        Counter("acme_challenges", "ACME challenges that a CA was requested to validate, by the result that it \
                                    reported.") {
            http01_valid [type: "http-01", result: "valid"],
            http01_invalid [type: "http-01", result: "invalid"],
            tls_alpn01_valid [type: "tls-alpn-01", result: "valid"],
            tls_alpn01_invalid [type: "tls-alpn-01", result: "invalid"],
            dns01_valid [type: "dns-01", result: "valid"],
            dns01_invalid [type: "dns-01", result: "invalid"],
            dns_persist01_valid [type: "dns-persist-01", result: "valid"],
            dns_persist01_invalid [type: "dns-persist-01", result: "invalid"],
        }
        Gauge("acme_certificates", "Hosts of `[[acme]]`, by the state of their certificate.") {
            valid [state: "valid"],
            due [state: "due"] "The certificate is due for renewal.",
            missing [state: "missing"] "There is no certificate yet, or it has expired: clients cannot connect.",
            failing [state: "failing"] "The last order failed; whether there is a certificate or not.",
            overdue [state: "overdue"]
                "Orders have failed for a third of the time that was left until expiry, or there is no certificate. \
                 Alert on this state.",
        }
        Gauge(
            "acme_next_attempt_timestamp_seconds",
            "Time of the next order, in seconds since the Unix epoch; 0 without `[[acme]]`."
        ) {
            next_attempt,
        }
    }
}
