//! An order at the CA, from its beginning, or where an earlier process left it, to the certificate (RFC 8555 §7.4).

use super::answers::{Answers, PreparedAnswers};
use super::dns::{self, Action};
use super::failure::{OrderFailure, blocking, nonce, problem_words, short_type};
use super::folder::Folder;
use super::http::Http;
use super::metrics::Metrics;
use super::plan::{Order as StoredOrder, Plan, bounded};
use instant_acme::{
    Account, AuthorizationStatus, CertificateIdentifier, ChallengeStatus, ChallengeType, Error, Identifier, NewOrder,
    Order, OrderStatus,
};
use litequic_base::lifecycle::panic_if_asked;
use litequic_config::{Acme, AcmeChallenge, AcmeHost, AcmeKey};
use rcgen::{
    CertificateParams, DistinguishedName, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_RSA_SHA256,
    RsaKeySize,
};
use std::{borrow::Cow, time::Duration};
use tokio::time::{Instant, sleep};

/// How long the CA may take to validate a host, once it is asked to; and to issue a certificate after that.
const PATIENCE: Duration = Duration::from_secs(10 * 60);
/// Before an order is looked at for the first time; it doubles with each look.
const FIRST_LOOK: Duration = Duration::from_millis(250);
/// Longest time between two looks, unless the CA's Retry-After is longer. A shorter one changes nothing: a CA that says
/// 0 would be asked without a pause.
const LONGEST_LOOK: Duration = Duration::from_secs(5);
/// Seconds up to which the CA's Retry-After counts.
const LONGEST_PAUSE: u64 = 60;
/// Times that an order is continued at most: one that the CA neither finishes nor refuses is given up.
const MOST_RESUMES: u64 = 10;

/// What a certificate is ordered with.
pub(super) struct Job<'a> {
    pub(super) host: &'a AcmeHost,
    pub(super) table: &'a Acme,
    /// The identifier of the certificate that it replaces (RFC 9773 §5).
    pub(super) replaces: Option<&'a str>,
    pub(super) folder: &'a Folder,
    pub(super) answers: &'a Answers,
    pub(super) metrics: &'a Metrics,
    pub(super) account: &'a Account,
    pub(super) http: &'a Http,
}

/// A challenge whose answers were prepared.
struct Prepared {
    challenge: AcmeChallenge,
    answers: PreparedAnswers,
    /// The CA was asked to validate it.
    was_asked: bool,
}

impl Job<'_> {
    /// Orders the certificate, or continues the order in `plan`, which has it from then on. Returns chain and key in
    /// PEM.
    ///
    /// # Errors
    ///
    /// [`OrderFailure`]. An order that cannot be continued is no longer in `plan`.
    pub(super) async fn obtain(&self, plan: &mut Plan) -> Result<String, OrderFailure> {
        let (mut order, key) = match self.resumed(plan).await? {
            Some(resumed) => resumed,
            None => self.begun(plan).await?,
        };
        let outcome = self.finish(&mut order, &key, plan).await;
        self.clean_up(plan).await;
        if outcome.is_err() && matches!(order.state().status, OrderStatus::Invalid) {
            plan.order = None;
        }
        Ok(outcome? + &key)
    }

    /// Removes the TXT record of the order in `plan`, if one was set, by this process or by one before.
    async fn clean_up(&self, plan: &mut Plan) {
        let Some((name, value)) = plan.order.as_mut().and_then(|order| order.record.take()) else { return };
        if let Err(problem) = dns::call(self.table, Action::Cleanup, &name, &value).await {
            tracing::warn!(host = %self.host, record = name, problem, "a TXT record was not removed");
        }
    }

    /// The order that an earlier process began; `None` if there is none that can be continued.
    async fn resumed(&self, plan: &mut Plan) -> Result<Option<(Order, String)>, OrderFailure> {
        let is_of = |order: &&mut StoredOrder| order.is_of(&self.table.directory) && order.resumed < MOST_RESUMES;
        let Some(stored) = plan.order.as_mut().filter(is_of) else {
            self.clean_up(plan).await;
            plan.order = None;
            return Ok(None);
        };
        stored.resumed = stored.resumed.saturating_add(1);
        let (url, key) = (stored.url.clone(), stored.key.clone());
        self.store(plan).await?;
        match nonce!(self.account.order(url.clone())) {
            Ok(mut order) => {
                if order.state().status == OrderStatus::Invalid {
                    self.clean_up(plan).await;
                    plan.order = None;
                    return Ok(None);
                }
                tracing::info!(host = %self.host, order = url, "continuing the order of a certificate");
                Ok(Some((order, key)))
            }
            Err(error) if is_unknown_order(&error) => {
                self.clean_up(plan).await;
                plan.order = None;
                Ok(None)
            }
            Err(error) => Err(self.failure(&error)),
        }
    }

    async fn begun(&self, plan: &mut Plan) -> Result<(Order, String), OrderFailure> {
        let identifiers = [match self.host {
            AcmeHost::Address(address) => Identifier::Ip(*address),
            AcmeHost::Name(_) | AcmeHost::Wildcard(_) => Identifier::Dns(self.host.to_string()),
        }];
        let profile = self.table.profile.as_deref();
        let request = || {
            let request = NewOrder::new(&identifiers);
            profile.map_or_else(|| NewOrder::new(&identifiers), |profile| request.profile(profile))
        };
        let replaces = self.replaces.and_then(|id| id.split_once('.')).map(|(authority, serial)| {
            let [authority_key_identifier, serial] = [authority, serial].map(|part| Cow::Owned(part.to_owned()));
            CertificateIdentifier { authority_key_identifier, serial }
        });
        let key = make_key(self.table.key).await?;
        let order = match replaces {
            // A CA may refuse it: the certificate was replaced already, or is another CA's.
            Some(replaces) => match nonce!(self.account.new_order(&request().replaces(replaces.clone()))) {
                Err(error) if is_about_replaces(&error) => nonce!(self.account.new_order(&request())),
                other => other,
            },
            None => nonce!(self.account.new_order(&request())),
        };
        let order = order.map_err(|error| self.failure(&error))?;
        let (directory, url) = (self.table.directory.clone(), order.url().to_owned());
        plan.order = Some(StoredOrder { directory, url, key: key.clone(), resumed: 0, record: None });
        self.store(plan).await?;
        panic_if_asked("acme-ordered");
        Ok((order, key))
    }

    /// Returns the chain.
    async fn finish(&self, order: &mut Order, key: &str, plan: &mut Plan) -> Result<String, OrderFailure> {
        if order.state().status == OrderStatus::Pending {
            self.validate(order, plan).await?;
            panic_if_asked("acme-validated");
        }
        if order.state().status == OrderStatus::Ready {
            let csr = csr(self.host, key)?;
            nonce!(order.finalize_csr(&csr)).map_err(|error| self.failure(&error))?;
            panic_if_asked("acme-finalized");
        }
        self.wait(order, &[OrderStatus::Processing, OrderStatus::Ready, OrderStatus::Pending]).await?;
        let chain = nonce!(order.certificate()).map_err(|error| self.failure(&error))?;
        panic_if_asked("acme-downloaded");
        chain.ok_or_else(|| OrderFailure::new("the CA has no certificate for the finished order".into()))
    }

    /// Has the CA validate the host.
    async fn validate(&self, order: &mut Order, plan: &mut Plan) -> Result<(), OrderFailure> {
        let mut prepared = Vec::new();
        let validated = self.prepare_and_wait(order, plan, &mut prepared).await;
        for Prepared { challenge, answers, was_asked } in prepared {
            self.answers.withdraw(self.folder, answers).await;
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

    async fn prepare_and_wait(
        &self,
        order: &mut Order,
        plan: &mut Plan,
        prepared: &mut Vec<Prepared>,
    ) -> Result<(), OrderFailure> {
        // All are fetched first: one that failed is skipped by the iterator that it failed in.
        let fetched = nonce!(async {
            let mut authorizations = order.authorizations();
            while let Some(authorization) = authorizations.next().await {
                authorization?;
            }
            Ok::<_, Error>(())
        });
        fetched.map_err(|error| self.failure(&error))?;
        let mut authorizations = order.authorizations();
        while let Some(authorization) = authorizations.next().await {
            let mut authorization = authorization.map_err(|error| self.failure(&error))?;
            if authorization.status != AuthorizationStatus::Pending {
                continue;
            }
            let offered: Vec<_> = authorization.challenges.iter().map(|one| one.r#type.clone()).collect();
            let mut wanted = self.table.challenges_of(self.host);
            let Some(challenge) = wanted.find(|one| offered.contains(&kind(*one))) else {
                let offered: Vec<_> = offered.iter().map(|one| format!("{one:?}")).collect();
                let problem = format!("the CA offers no challenge of `challenges`, but {}", offered.join(", "));
                return Err(OrderFailure::new(bounded(&problem)));
            };
            let Some(mut handle) = authorization.challenge(kind(challenge)) else { continue };
            let proof = handle.key_authorization();
            let answers = self.answers.prepare(self.folder, self.host, challenge, proof.digest().as_ref()).await?;
            prepared.push(Prepared { challenge, answers, was_asked: false });
            match challenge {
                AcmeChallenge::Http01 | AcmeChallenge::TlsAlpn01 => {}
                AcmeChallenge::Dns01 => self.set_record(plan, proof.dns_value()).await?,
                AcmeChallenge::DnsPersist01 => {
                    let record = dns::persistent(self.host, self.http.issuer().as_deref(), self.account.id());
                    tracing::info!(host = %self.host, record, "the CA looks for this TXT record, which may stay");
                    self.answers.set_record(self.host, record);
                }
            }
            panic_if_asked("acme-prepared");
            // An earlier process may have said so already.
            if handle.status == ChallengeStatus::Pending {
                nonce!(handle.set_ready()).map_err(|error| self.failure(&error))?;
            }
            if let Some(prepared) = prepared.last_mut() {
                prepared.was_asked = true;
            }
        }
        self.wait(order, &[OrderStatus::Pending]).await
    }

    /// Sets the TXT record of DNS-01, which `plan` has before it is set, and waits as configured.
    async fn set_record(&self, plan: &mut Plan, value: String) -> Result<(), OrderFailure> {
        let name = dns::name(self.host, "_acme-challenge");
        if let Some(order) = &mut plan.order {
            order.record = Some((name.clone(), value.clone()));
        }
        self.store(plan).await?;
        dns::call(self.table, Action::Present, &name, &value).await.map_err(OrderFailure::new)?;
        sleep(self.table.dns_wait).await;
        Ok(())
    }

    /// Waits until the order is in no state of `during`, up to [`PATIENCE`] from now: what was prepared before has
    /// taken its own time.
    ///
    /// # Errors
    ///
    /// [`OrderFailure`] if it is then invalid, too.
    async fn wait(&self, order: &mut Order, during: &[OrderStatus]) -> Result<(), OrderFailure> {
        let (deadline, mut pause) = (Instant::now() + PATIENCE, FIRST_LOOK);
        loop {
            let status = order.state().status;
            if status == OrderStatus::Invalid || order.state().error.is_some() {
                return Err(self.why_invalid(order).await);
            }
            if !during.contains(&status) {
                return Ok(());
            }
            if Instant::now() >= deadline {
                return Err(OrderFailure::new(format!("the CA's order is still {status:?} after {PATIENCE:?}")));
            }
            let asked = self.http.take_pause().map(|seconds| Duration::from_secs(seconds.min(LONGEST_PAUSE)));
            sleep(asked.unwrap_or_default().max(pause)).await;
            pause = (2 * pause).min(LONGEST_LOOK);
            nonce!(async { order.refresh().await.map(drop) }).map_err(|error| self.failure(&error))?;
        }
    }

    /// The CA's reason, which is the order's, or that of a challenge.
    async fn why_invalid(&self, order: &mut Order) -> OrderFailure {
        let mut reasons: Vec<String> = order.state().error.iter().map(problem_words).collect();
        let mut authorizations = order.authorizations();
        while let Some(Ok(mut authorization)) = authorizations.next().await {
            if authorization.refresh().await.is_err() {
                continue;
            }
            reasons.extend(authorization.challenges.iter().filter_map(|one| one.error.as_ref()).map(problem_words));
        }
        reasons.dedup();
        let reason =
            if reasons.is_empty() { "the CA refused the order without a reason".into() } else { reasons.join("; ") };
        OrderFailure { wait: self.http.take_retry_after(), ..OrderFailure::new(reason) }
    }

    fn failure(&self, error: &Error) -> OrderFailure {
        OrderFailure::of_ca(error, self.http)
    }

    async fn store(&self, plan: &Plan) -> Result<(), OrderFailure> {
        let (folder, host, plan) = (self.folder.clone(), self.host.clone(), plan.clone());
        let stored = blocking(move || folder.store_plan(&host, &plan)).await?;
        stored.map_err(|error| OrderFailure::of_folder(self.folder, &error))
    }
}

fn kind(challenge: AcmeChallenge) -> ChallengeType {
    match challenge {
        AcmeChallenge::Dns01 => ChallengeType::Dns01,
        AcmeChallenge::DnsPersist01 => ChallengeType::Unknown(challenge.name().into()),
        AcmeChallenge::Http01 => ChallengeType::Http01,
        AcmeChallenge::TlsAlpn01 => ChallengeType::TlsAlpn01,
    }
}

async fn make_key(kind: AcmeKey) -> Result<String, OrderFailure> {
    let key = blocking(move || match kind {
        AcmeKey::P256 => KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256),
        AcmeKey::P384 => KeyPair::generate_for(&PKCS_ECDSA_P384_SHA384),
        AcmeKey::Rsa2048 => KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048),
    });
    let key = key.await?.map_err(|error| OrderFailure::new(format!("cannot make a key: {error}")))?;
    Ok(key.serialize_pem())
}

/// The request for a certificate of `host` alone, without a subject.
fn csr(host: &AcmeHost, key: &str) -> Result<Vec<u8>, OrderFailure> {
    let made = || {
        let key = KeyPair::from_pem(key)?;
        let mut parameters = CertificateParams::new([host.to_string()])?;
        parameters.distinguished_name = DistinguishedName::new();
        Ok::<_, rcgen::Error>(parameters.serialize_request(&key)?.der().to_vec())
    };
    made().map_err(|error| OrderFailure::new(format!("cannot make a certificate request: {error}")))
}

/// Whether a CA does not know an order any more, or not as the account's. Another refusal, such as a rate limit or a
/// server's error, says nothing about the order.
fn is_unknown_order(error: &Error) -> bool {
    let Error::Api(problem) = error else { return false };
    problem.status == Some(404) || matches!(short_type(problem), Some("malformed" | "unauthorized"))
}

/// Refusals that have nothing to do with the certificate that an order replaces.
const OTHER_REASONS: [&str; 6] = [
    "accountDoesNotExist",
    "badNonce",
    "externalAccountRequired",
    "rateLimited",
    "rejectedIdentifier",
    "userActionRequired",
];

/// Whether a CA, or instant-acme, may refuse an order for the certificate that it replaces: it was replaced already, or
/// is not known to the CA (RFC 9773 §5).
fn is_about_replaces(error: &Error) -> bool {
    match error {
        Error::Api(problem) => short_type(problem).is_none_or(|kind| !OTHER_REASONS.contains(&kind)),
        Error::Unsupported(_) | Error::Other(_) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_is_given_up_where_the_ca_does_not_know_it_alone() {
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
