//! Takes an order at the CA from its beginning, or from its interruption by the end of an earlier process, to the
//! certificate (RFC 8555 §7.4).

use super::ca_client::CaClient;
use super::challenge_responses::ChallengeResponses;
use super::dns;
use super::failure::{OrderFailure, describe_problem, nonce, run_blocking, short_problem_type};
use super::folder::{AcmeFolder, parse_certificate_id};
use super::metrics::AcmeMetrics;
use super::plan::{HostPlan, StoredOrder, bounded_line};
use instant_acme::{
    Account, AuthorizationStatus, ChallengeStatus, ChallengeType, Error, Identifier, NewOrder, Order, OrderStatus,
};
use litequic_base::lifecycle::panic_if_requested;
use litequic_config::{Acme, AcmeChallenge, AcmeHost, AcmeKey};
use rcgen::{
    CertificateParams, DistinguishedName, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_RSA_SHA256,
    RsaKeySize,
};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Longest time that the CA may take to validate a host, and then again to issue a certificate.
const ORDER_TIMEOUT: Duration = Duration::from_secs(10 * 60);
/// Delay before the first poll of an order; each poll doubles it.
const FIRST_POLL_DELAY: Duration = Duration::from_millis(250);
/// Longest delay between two polls, unless the CA's Retry-After is longer. A shorter Retry-After is ignored: with 0
/// litequic would poll without pause.
const MAX_POLL_DELAY: Duration = Duration::from_secs(5);
/// Largest Retry-After that polls respect, in seconds.
const MAX_RETRY_AFTER_SECONDS: u64 = 60;
/// Times that an order is resumed at most. After that, an order that the CA neither finishes nor refuses is given up.
const MAX_RESUMES: u64 = 10;

/// Parameters of one certificate order.
pub(super) struct CertificateOrder<'a> {
    pub(super) host: &'a AcmeHost,
    pub(super) table: &'a Acme,
    /// Identifier of the certificate to be replaced (RFC 9773 §5).
    pub(super) replaces: Option<&'a str>,
    pub(super) folder: &'a AcmeFolder,
    pub(super) answers: &'a ChallengeResponses,
    pub(super) metrics: &'a AcmeMetrics,
    pub(super) account: &'a Account,
    pub(super) http: &'a CaClient,
}

/// A challenge whose response has been prepared.
struct ProvisionedChallenge {
    challenge: AcmeChallenge,
    /// Server name of the certificate that answers the challenge, if one does.
    certificate: Option<String>,
    /// Whether the CA was asked to validate the challenge.
    was_asked: bool,
}

impl CertificateOrder<'_> {
    /// Orders the certificate, or resumes the order in `plan`; a new order is stored in `plan`. Returns chain and key
    /// in PEM.
    ///
    /// # Errors
    ///
    /// [`OrderFailure`]. An order that cannot be resumed is removed from `plan`.
    pub(super) async fn obtain_certificate(&self, plan: &mut HostPlan) -> Result<String, OrderFailure> {
        let (mut order, key) = match self.resume_order(plan).await? {
            Some(resumed) => resumed,
            None => self.begin_order(plan).await?,
        };
        let outcome = self.finish_order(&mut order, &key, plan).await;
        self.remove_dns_record(plan).await;
        if outcome.is_err() && matches!(order.state().status, OrderStatus::Invalid) {
            plan.order = None;
        }
        Ok(outcome? + &key)
    }

    /// Removes the TXT record of the order in `plan`, if this or an earlier process set one.
    async fn remove_dns_record(&self, plan: &mut HostPlan) {
        let Some((name, value)) = plan.order.as_mut().and_then(|order| order.record.take()) else { return };
        if let Err(problem) = dns::run_dns_command(self.table, "cleanup", &name, &value).await {
            tracing::warn!(host = %self.host, record = name, problem, "a TXT record was not removed");
        }
    }

    /// Resumes the order of an earlier process; `None` if there is none that can be resumed.
    async fn resume_order(&self, plan: &mut HostPlan) -> Result<Option<(Order, String)>, OrderFailure> {
        let is_of =
            |order: &&mut StoredOrder| order.is_resumable_at(&self.table.directory) && order.resumed < MAX_RESUMES;
        if let Some(stored) = plan.order.as_mut().filter(is_of) {
            stored.resumed = stored.resumed.saturating_add(1);
            let (url, key) = (stored.url.clone(), stored.key.clone());
            store_plan(self.folder, self.host, plan).await?;
            match nonce!(self.account.order(url.clone())) {
                Ok(mut order) => {
                    if order.state().status != OrderStatus::Invalid {
                        tracing::info!(host = %self.host, order = url, "continuing the order of a certificate");
                        return Ok(Some((order, key)));
                    }
                }
                Err(error) if is_unknown_order(&error) => {}
                Err(error) => return Err(self.ca_failure(&error)),
            }
        }
        self.remove_dns_record(plan).await;
        plan.order = None;
        Ok(None)
    }

    async fn begin_order(&self, plan: &mut HostPlan) -> Result<(Order, String), OrderFailure> {
        let identifiers = [match self.host {
            AcmeHost::Address(address) => Identifier::Ip(*address),
            AcmeHost::Name(_) | AcmeHost::Wildcard(_) => Identifier::Dns(self.host.to_string()),
        }];
        let profile = self.table.profile.as_deref();
        let request = || {
            let request = NewOrder::new(&identifiers);
            profile.map_or_else(|| NewOrder::new(&identifiers), |profile| request.profile(profile))
        };
        let key = generate_key_pem(self.table.key).await?;
        let order = match self.replaces.and_then(parse_certificate_id) {
            // A CA may refuse `replaces`: the certificate was replaced already, or is another CA's.
            Some(replaces) => match nonce!(self.account.new_order(&request().replaces(replaces.clone()))) {
                Err(error) if may_concern_replaces(&error) => nonce!(self.account.new_order(&request())),
                other => other,
            },
            None => nonce!(self.account.new_order(&request())),
        };
        let order = order.map_err(|error| self.ca_failure(&error))?;
        let (directory, url) = (self.table.directory.clone(), order.url().to_owned());
        plan.order = Some(StoredOrder { directory, url, key: key.clone(), resumed: 0, record: None });
        store_plan(self.folder, self.host, plan).await?;
        panic_if_requested("acme-ordered");
        Ok((order, key))
    }

    /// Finishes the order and returns the chain.
    async fn finish_order(&self, order: &mut Order, key: &str, plan: &mut HostPlan) -> Result<String, OrderFailure> {
        if order.state().status == OrderStatus::Pending {
            self.validate_host(order, plan).await?;
            panic_if_requested("acme-validated");
        }
        if order.state().status == OrderStatus::Ready {
            let csr = make_csr(self.host, key)?;
            nonce!(order.finalize_csr(&csr)).map_err(|error| self.ca_failure(&error))?;
            panic_if_requested("acme-finalized");
        }
        self.poll_order(order, &[OrderStatus::Processing, OrderStatus::Ready, OrderStatus::Pending]).await?;
        let chain = nonce!(order.certificate()).map_err(|error| self.ca_failure(&error))?;
        panic_if_requested("acme-downloaded");
        chain.ok_or_else(|| OrderFailure::new("the CA has no certificate for the finished order".into()))
    }

    /// Has the CA validate the host.
    async fn validate_host(&self, order: &mut Order, plan: &mut HostPlan) -> Result<(), OrderFailure> {
        let mut prepared = Vec::new();
        let validated = self.provision_and_wait(order, plan, &mut prepared).await;
        for ProvisionedChallenge { challenge, certificate, was_asked } in prepared {
            if let Some(name) = certificate {
                self.answers.withdraw_certificate(self.folder, name).await;
            }
            // A challenge that the CA was not asked to validate has no result.
            if !was_asked {
                continue;
            }
            let is_valid = validated.is_ok();
            let counter = match (challenge, is_valid) {
                (AcmeChallenge::Http01, true) => &self.metrics.http01_valid,
                (AcmeChallenge::Http01, false) => &self.metrics.http01_invalid,
                (AcmeChallenge::TlsAlpn01, true) => &self.metrics.tls_alpn01_valid,
                (AcmeChallenge::TlsAlpn01, false) => &self.metrics.tls_alpn01_invalid,
                (AcmeChallenge::Dns01, true) => &self.metrics.dns01_valid,
                (AcmeChallenge::Dns01, false) => &self.metrics.dns01_invalid,
                (AcmeChallenge::DnsPersist01, true) => &self.metrics.dns_persist01_valid,
                (AcmeChallenge::DnsPersist01, false) => &self.metrics.dns_persist01_invalid,
            };
            counter.increment();
        }
        validated
    }

    async fn provision_and_wait(
        &self,
        order: &mut Order,
        plan: &mut HostPlan,
        prepared: &mut Vec<ProvisionedChallenge>,
    ) -> Result<(), OrderFailure> {
        // Fetch all authorizations first: the iterator skips one whose fetch failed.
        let fetched = nonce!(async {
            let mut authorizations = order.authorizations();
            while let Some(authorization) = authorizations.next().await {
                authorization?;
            }
            Ok::<_, Error>(())
        });
        fetched.map_err(|error| self.ca_failure(&error))?;
        let mut authorizations = order.authorizations();
        while let Some(authorization) = authorizations.next().await {
            let mut authorization = authorization.map_err(|error| self.ca_failure(&error))?;
            if authorization.status != AuthorizationStatus::Pending {
                continue;
            }
            let offered: Vec<_> = authorization.challenges.iter().map(|one| one.r#type.clone()).collect();
            let mut wanted = self.table.challenges_for_host(self.host);
            let Some(challenge) = wanted.find(|one| offered.contains(&challenge_kind(*one))) else {
                let offered: Vec<_> = offered.iter().map(|one| format!("{one:?}")).collect();
                let problem =
                    format!("the CA offers none of the challenges in `challenges`, only {}", offered.join(", "));
                return Err(OrderFailure::new(bounded_line(&problem)));
            };
            let Some(mut handle) = authorization.challenge(challenge_kind(challenge)) else { continue };
            let proof = handle.key_authorization();
            let certificate = match challenge {
                AcmeChallenge::TlsAlpn01 => {
                    Some(self.answers.provision_certificate(self.folder, self.host, proof.digest().as_ref()).await?)
                }
                AcmeChallenge::Http01 | AcmeChallenge::Dns01 | AcmeChallenge::DnsPersist01 => None,
            };
            prepared.push(ProvisionedChallenge { challenge, certificate, was_asked: false });
            match challenge {
                AcmeChallenge::Http01 | AcmeChallenge::TlsAlpn01 => {}
                AcmeChallenge::Dns01 => self.set_dns_record(plan, proof.dns_value()).await?,
                AcmeChallenge::DnsPersist01 => {
                    let record =
                        dns::persistent_record_line(self.host, self.http.issuer_domain().as_deref(), self.account.id());
                    tracing::info!(host = %self.host, record, "the CA looks up this TXT record, which may stay in DNS");
                    self.answers.set_persistent_record(self.host, record);
                }
            }
            panic_if_requested("acme-prepared");
            // An earlier process may have sent this request already.
            if handle.status == ChallengeStatus::Pending {
                nonce!(handle.set_ready()).map_err(|error| self.ca_failure(&error))?;
            }
            if let Some(prepared) = prepared.last_mut() {
                prepared.was_asked = true;
            }
        }
        self.poll_order(order, &[OrderStatus::Pending]).await
    }

    /// Sets the TXT record of DNS-01 after storing it in `plan`, and waits for `dns_wait`.
    async fn set_dns_record(&self, plan: &mut HostPlan, value: String) -> Result<(), OrderFailure> {
        let name = dns::record_name(self.host, "_acme-challenge");
        if let Some(order) = &mut plan.order {
            order.record = Some((name.clone(), value.clone()));
        }
        store_plan(self.folder, self.host, plan).await?;
        dns::run_dns_command(self.table, "present", &name, &value).await.map_err(OrderFailure::new)?;
        sleep(self.table.dns_wait).await;
        Ok(())
    }

    /// Polls until the order leaves the states `during`, for [`ORDER_TIMEOUT`] at most.
    ///
    /// # Errors
    ///
    /// [`OrderFailure`] on a timeout, or if the order is invalid.
    async fn poll_order(&self, order: &mut Order, during: &[OrderStatus]) -> Result<(), OrderFailure> {
        let (deadline, mut pause) = (Instant::now() + ORDER_TIMEOUT, FIRST_POLL_DELAY);
        loop {
            let status = order.state().status;
            if status == OrderStatus::Invalid || order.state().error.is_some() {
                return Err(self.invalid_order_reason(order).await);
            }
            if !during.contains(&status) {
                return Ok(());
            }
            if Instant::now() >= deadline {
                return Err(OrderFailure::new(format!("the CA's order is still {status:?} after {ORDER_TIMEOUT:?}")));
            }
            let asked =
                self.http.take_poll_delay().map(|seconds| Duration::from_secs(seconds.min(MAX_RETRY_AFTER_SECONDS)));
            sleep(asked.unwrap_or_default().max(pause)).await;
            pause = (2 * pause).min(MAX_POLL_DELAY);
            nonce!(async { order.refresh().await.map(drop) }).map_err(|error| self.ca_failure(&error))?;
        }
    }

    /// Returns the CA's reason for an invalid order: of the order itself, or of its challenges.
    async fn invalid_order_reason(&self, order: &mut Order) -> OrderFailure {
        let mut reasons: Vec<String> = order.state().error.iter().map(describe_problem).collect();
        let mut authorizations = order.authorizations();
        while let Some(Ok(mut authorization)) = authorizations.next().await {
            if authorization.refresh().await.is_err() {
                continue;
            }
            reasons.extend(authorization.challenges.iter().filter_map(|one| one.error.as_ref()).map(describe_problem));
        }
        reasons.dedup();
        let reason =
            if reasons.is_empty() { "the CA refused the order without a reason".into() } else { reasons.join("; ") };
        OrderFailure { retry_after: self.http.take_retry_after(), ..OrderFailure::new(reason) }
    }

    fn ca_failure(&self, error: &Error) -> OrderFailure {
        OrderFailure::from_ca_error(error, self.http)
    }
}

/// Stores the `plan` of `host` in `folder`.
pub(super) async fn store_plan(folder: &AcmeFolder, host: &AcmeHost, plan: &HostPlan) -> Result<(), OrderFailure> {
    let (of, host, plan) = (folder.clone(), host.clone(), plan.clone());
    let stored = run_blocking(move || of.write_plan(&host, &plan)).await?;
    stored.map_err(|error| OrderFailure::from_folder_error(folder, &error))
}

fn challenge_kind(challenge: AcmeChallenge) -> ChallengeType {
    match challenge {
        AcmeChallenge::Dns01 => ChallengeType::Dns01,
        AcmeChallenge::DnsPersist01 => ChallengeType::Unknown(challenge.challenge_type().into()),
        AcmeChallenge::Http01 => ChallengeType::Http01,
        AcmeChallenge::TlsAlpn01 => ChallengeType::TlsAlpn01,
    }
}

async fn generate_key_pem(kind: AcmeKey) -> Result<String, OrderFailure> {
    let key = run_blocking(move || match kind {
        AcmeKey::P256 => KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256),
        AcmeKey::P384 => KeyPair::generate_for(&PKCS_ECDSA_P384_SHA384),
        AcmeKey::Rsa2048 => KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048),
    });
    let key = key.await?.map_err(|error| OrderFailure::new(format!("cannot make a key: {error}")))?;
    Ok(key.serialize_pem())
}

/// Makes a certificate signing request for `host` alone, without a subject.
fn make_csr(host: &AcmeHost, key: &str) -> Result<Vec<u8>, OrderFailure> {
    let made = || {
        let key = KeyPair::from_pem(key)?;
        let mut parameters = CertificateParams::new([host.to_string()])?;
        parameters.distinguished_name = DistinguishedName::new();
        Ok::<_, rcgen::Error>(parameters.serialize_request(&key)?.der().to_vec())
    };
    made().map_err(|error| OrderFailure::new(format!("cannot make a certificate request: {error}")))
}

/// Whether the CA no longer knows the order, or not as the account's. Other refusals, such as a rate limit or a server
/// error, do not concern the order.
fn is_unknown_order(error: &Error) -> bool {
    let Error::Api(problem) = error else { return false };
    problem.status == Some(404) || matches!(short_problem_type(problem), Some("malformed" | "unauthorized"))
}

/// Types of problems that do not concern the certificate to be replaced.
const UNRELATED_PROBLEMS: [&str; 6] = [
    "accountDoesNotExist",
    "badNonce",
    "externalAccountRequired",
    "rateLimited",
    "rejectedIdentifier",
    "userActionRequired",
];

/// Whether an order may have been refused because of the certificate to be replaced, by the CA or by instant-acme: it
/// was replaced already, or is unknown to the CA (RFC 9773 §5).
fn may_concern_replaces(error: &Error) -> bool {
    match error {
        Error::Api(problem) => short_problem_type(problem).is_none_or(|kind| !UNRELATED_PROBLEMS.contains(&kind)),
        Error::Unsupported(_) | Error::Other(_) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_is_given_up_only_if_the_ca_forgot_it() {
        for (problem, expected) in [
            (r#"{"type": "about:blank", "detail": "HTTP status 404 Not Found", "status": 404}"#, true),
            (r#"{"type": "urn:ietf:params:acme:error:malformed", "detail": "no such order", "status": 400}"#, true),
            (r#"{"type": "urn:ietf:params:acme:error:unauthorized"}"#, true),
            (r#"{"type": "urn:ietf:params:acme:error:rateLimited", "status": 429}"#, false),
            (r#"{"type": "urn:ietf:params:acme:error:serverInternal", "status": 500}"#, false),
            (r#"{"type": "urn:ietf:params:acme:error:accountDoesNotExist", "status": 400}"#, false),
            (r#"{"type": "about:blank", "detail": "HTTP status 503 Service Unavailable", "status": 503}"#, false),
            ("{}", false),
        ] {
            let error = Error::Api(serde_json::from_str(problem).unwrap());
            assert_eq!(is_unknown_order(&error), expected, "{problem}");
        }
        assert!(!is_unknown_order(&Error::Str("no connection")));
    }
}
