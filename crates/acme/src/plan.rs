//! Decides when a certificate is ordered, and keeps the state for the next order. Pure: takes times of the wall clock,
//! in seconds since the Unix epoch, and returns the next step. Every decision is made anew from stored state, so a
//! clock that jumps or a suspended machine affects only the next check.

use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// Lifetime below which certificates are short-lived: renewed at half of it, with shorter delays after failures.
const SHORT_LIFETIME: u64 = 10 * DAY;
/// Delay after the first failure; each further failure doubles it.
const FIRST_RETRY_DELAY: u64 = 15 * MINUTE;
/// Longest delay after a failure.
const MAX_RETRY_DELAY: u64 = 12 * HOUR;
/// Longest delay after a failure for a short-lived certificate.
const MAX_SHORT_LIVED_RETRY_DELAY: u64 = 3 * HOUR;
/// Random part of a delay, in both directions, so that replicas and hosts that failed together do not retry together.
const RETRY_JITTER: f64 = 0.2;
/// Longest interval between two requests for renewal information (RFC 9773 §4.3.2).
const MAX_RENEWAL_INFO_INTERVAL: u64 = DAY;
/// Largest Retry-After of a refusal that is respected: the longest period of Let's Encrypt's rate limits.
pub(super) const MAX_REFUSAL_RETRY: u64 = 7 * DAY;
/// Interval after a request for renewal information that failed or had no Retry-After.
pub(super) const RENEWAL_INFO_INTERVAL: u64 = 6 * HOUR;
/// Shortest time between two renewals, but at most a third of the lifetime. Applies if the CA's windows are always
/// over, or if a clock is ahead of the CA's by more than a lifetime, so that each new certificate seems expired.
const MIN_RENEWAL_INTERVAL: u64 = DAY;
/// Time between two changes of the CA: processes that share a folder may be configured with different CAs.
const MIN_CA_CHANGE_INTERVAL: u64 = DAY;
/// Shortest interval between two requests for renewal information (RFC 9773 §4.3.2).
const MIN_RENEWAL_INFO_INTERVAL: u64 = MINUTE;
/// Times that an order is resumed at once when a process starts. A process that crashed while resuming waits as after a
/// failure.
const MAX_IMMEDIATE_RESUMES: u64 = 3;
/// Characters of the CA's problem that are retained.
const MAX_PROBLEM_CHARACTERS: usize = 1000;

/// Validity period of a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Validity {
    /// Beginning, in seconds since the Unix epoch.
    pub from: u64,
    /// End, in seconds since the Unix epoch.
    pub until: u64,
}

impl Validity {
    const fn lifetime_seconds(self) -> u64 {
        self.until.saturating_sub(self.from)
    }

    const fn is_short_lived(self) -> bool {
        self.lifetime_seconds() < SHORT_LIFETIME
    }
}

/// State of a host that is stored beside its certificate.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct HostPlan {
    /// Directory of the CA that issued the certificate.
    pub(super) directory: String,
    /// An order that has begun and not finished.
    pub(super) order: Option<StoredOrder>,
    /// Attempts since the last success.
    pub(super) attempts: Option<OrderAttempts>,
    /// The CA's renewal information about the certificate.
    pub(super) renewal: Option<RenewalInfo>,
    /// Time at which the certificate replaced another one; 0 for the first.
    pub(super) renewed: u64,
    /// Time of the last change of the CA; 0 without one.
    pub(super) changed: u64,
}

/// An order in progress at the CA.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct StoredOrder {
    /// Directory of the CA.
    pub(super) directory: String,
    /// URL of the order at the CA.
    pub(super) url: String,
    /// Private key of the certificate, in PEM.
    pub(super) key: String,
    /// Times that the order was resumed.
    pub(super) resumed: u64,
    /// Name and value of the TXT record that is set, to be removed.
    pub(super) record: Option<(String, String)>,
}

impl StoredOrder {
    /// Whether the order can be continued at `directory`.
    pub(super) fn is_resumable_at(&self, directory: &str) -> bool {
        self.directory == directory && !self.url.is_empty()
    }
}

/// Attempts that failed, or whose result is unknown.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct OrderAttempts {
    /// Time of the first attempt.
    pub(super) since: u64,
    /// Number of attempts.
    pub(super) count: u64,
    /// Time before which no further attempt is made.
    pub(super) next: u64,
    /// Reason why the last attempt failed; `None` while it runs, or if the process ended during it.
    pub(super) problem: Option<String>,
}

impl OrderAttempts {
    /// Returns the earliest time of the next attempt. A time stored by a clock more than a day ahead is ignored.
    fn next_attempt_time(&self, now: u64) -> u64 {
        let is_of_the_future = self.since > now.saturating_add(DAY);
        if is_of_the_future { now } else { clamp_stored_time(now, self.next, MAX_REFUSAL_RETRY) }
    }
}

/// Renewal information of a CA (RFC 9773).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct RenewalInfo {
    /// Identifier of the certificate.
    pub(super) certificate: String,
    /// The suggested window; `None` if the CA has no information.
    pub(super) window: Option<RenewalWindow>,
    /// Time of the next request for renewal information.
    pub(super) ask: u64,
}

/// Suggested renewal window, in seconds since the Unix epoch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct RenewalWindow {
    pub(super) start: u64,
    pub(super) end: u64,
    /// Random point of the window, at which the renewal is due.
    pub(super) chosen: u64,
}

/// Next action for a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PlanStep {
    /// Continue the order that was begun.
    Resume,
    /// Order a certificate.
    Order,
    /// Request renewal information.
    Ask,
}

/// Facts about the current certificate that the next step depends on.
#[derive(Debug, Clone, Copy)]
pub(super) struct CurrentCertificate<'a> {
    pub(super) validity: Validity,
    /// Identifier for renewal information, if the certificate has one.
    pub(super) id: Option<&'a str>,
}

impl HostPlan {
    /// Returns the next step and its time, which may have passed. Before `spread` this process renews nothing.
    pub(super) fn next_plan_step(
        &self,
        now: u64,
        held: Option<CurrentCertificate<'_>>,
        directory: &str,
        spread: u64,
    ) -> (PlanStep, u64) {
        let not_before = self.attempts.as_ref().map_or(0, |attempts| attempts.next_attempt_time(now));
        if let Some(order) = self.order.as_ref().filter(|order| order.is_resumable_at(directory)) {
            let at_once = order.resumed < MAX_IMMEDIATE_RESUMES
                && self.attempts.as_ref().is_none_or(|last| last.problem.is_none());
            return (PlanStep::Resume, if at_once { now } else { not_before });
        }
        let Some(held) = held else { return (PlanStep::Order, not_before) };
        let due = match self.directory == directory {
            true => self.renewal_time(now, held).max(spread),
            false => self.ca_change_time(now),
        };
        let order = due.max(not_before);
        let ask = held.id.map(|id| match self.renewal.as_ref().filter(|renewal| renewal.certificate == id) {
            Some(renewal) => clamp_stored_time(now, renewal.ask, MAX_RENEWAL_INFO_INTERVAL),
            None => now,
        });
        match ask {
            Some(ask) if ask <= order && order > now && self.directory == directory => (PlanStep::Ask, ask),
            _ => (PlanStep::Order, order),
        }
    }

    /// Returns the earliest time to order a certificate from another directory than the issuing one, such as production
    /// after staging: at once, but only once a day.
    pub(super) fn ca_change_time(&self, now: u64) -> u64 {
        clamp_stored_time(now, self.changed.saturating_add(MIN_CA_CHANGE_INTERVAL), MIN_CA_CHANGE_INTERVAL).max(now)
    }

    /// Returns the plan after `directory` has issued a certificate; `replaces` if there was one before.
    pub(super) fn after_issuance(&self, now: u64, directory: &str, replaces: bool) -> Self {
        let renewed = if replaces { now } else { 0 };
        let changed = if replaces && self.directory != directory { now } else { self.changed };
        Self { directory: directory.into(), renewed, changed, ..Self::default() }
    }

    /// Returns the time of renewal: the chosen point of the CA's window; without a window two thirds of the lifetime,
    /// or half of a short one. A sixth of the lifetime is always left, and two renewals have [`MIN_RENEWAL_INTERVAL`]
    /// between them.
    pub(super) fn renewal_time(&self, now: u64, CurrentCertificate { validity, id }: CurrentCertificate<'_>) -> u64 {
        let renewal = self.renewal.as_ref().filter(|renewal| id == Some(renewal.certificate.as_str()));
        let life = validity.lifetime_seconds();
        let by_life = validity.from + if validity.is_short_lived() { life / 2 } else { life / 3 * 2 };
        // A time in the future was stored by a clock that was ahead.
        let renewed = if self.renewed > now { 0 } else { self.renewed };
        let window = renewal.and_then(|renewal| renewal.window);
        let suggested = window.map_or(by_life, |window| window.chosen.max(renewed + MIN_RENEWAL_INTERVAL));
        let latest = validity.until.saturating_sub(life / 6);
        suggested.min(latest).max(renewed + MIN_RENEWAL_INTERVAL.min(life / 3))
    }

    /// Whether orders have failed for a third of the certificate's remaining lifetime; at once without a certificate.
    pub(super) fn is_overdue(&self, now: u64, held: Option<Validity>) -> bool {
        let Some(attempts) = self.attempts.as_ref().filter(|attempts| attempts.problem.is_some()) else { return false };
        let left = held.map_or(0, |validity| validity.until.saturating_sub(attempts.since));
        now >= attempts.since.saturating_add(left / 3)
    }

    /// Records an attempt that begins at `now`; until its result is known it counts as failed. `share` is random, from
    /// 0 to 1.
    pub(super) fn record_attempt_start(&mut self, now: u64, held: Option<Validity>, share: f64) {
        let (since, count) = self.attempts.as_ref().map_or((now, 0), |before| (before.since.min(now), before.count));
        let count = count.saturating_add(1);
        self.attempts =
            Some(OrderAttempts { since, count, next: now + delay_after_failures(count, held, share), problem: None });
    }

    /// Records the failure of the attempt that began with `step`; the CA wants no request for `wait` seconds.
    pub(super) fn record_failed_attempt(
        &mut self,
        step: PlanStep,
        now: u64,
        problem: &str,
        wait: Option<u64>,
        held: Option<Validity>,
        share: f64,
    ) {
        let none = OrderAttempts { since: now, count: 0, next: now, problem: None };
        let attempts = self.attempts.get_or_insert(none);
        // A new order was counted when it began.
        if step == PlanStep::Resume {
            attempts.count = attempts.count.saturating_add(1);
        }
        let wait = wait.unwrap_or(0).min(MAX_REFUSAL_RETRY);
        attempts.next = now + delay_after_failures(attempts.count, held, share).max(wait);
        attempts.problem = Some(bounded_line(problem));
    }

    /// Stores renewal information: the suggested window, if any, and the seconds until the next request. The point of a
    /// window is chosen once.
    pub(super) fn store_renewal_info(
        &mut self,
        now: u64,
        id: &str,
        window: Option<(u64, u64)>,
        wait: Option<u64>,
        share: f64,
    ) {
        let known = self.renewal.as_ref().filter(|known| known.certificate == id).and_then(|known| known.window);
        let window = window.filter(|(start, end)| start <= end).map(|(start, end)| match known {
            Some(known) if (known.start, known.end) == (start, end) => known,
            _ => RenewalWindow { start, end, chosen: start + share_of_seconds(end - start, share) },
        });
        let ask =
            now + wait.unwrap_or(RENEWAL_INFO_INTERVAL).clamp(MIN_RENEWAL_INFO_INTERVAL, MAX_RENEWAL_INFO_INTERVAL);
        self.renewal = Some(RenewalInfo { certificate: id.into(), window: window.or(known), ask });
    }

    /// Returns the plan as stored JSON.
    pub(super) fn to_json(&self) -> Json {
        json!(self)
    }

    /// Reads the result of [`HostPlan::to_json`]. Missing members read as empty, and an invalid one loses the plan,
    /// which costs no more than an order.
    pub(super) fn from_json(json: &Json) -> Self {
        let mut plan = Self::deserialize(json).unwrap_or_default();
        if let Some(problem) = plan.attempts.as_mut().and_then(|attempts| attempts.problem.as_mut()) {
            *problem = bounded_line(problem);
        }
        plan
    }
}

/// Returns `stored`, or `now` if `stored` is more than `longest` ahead: a clock that was ahead, and has been set back,
/// has stored such a time.
fn clamp_stored_time(now: u64, stored: u64, longest: u64) -> u64 {
    if stored > now.saturating_add(longest) { now } else { stored }
}

/// Returns the delay after `count` consecutive failures.
fn delay_after_failures(count: u64, held: Option<Validity>, share: f64) -> u64 {
    let longest =
        if held.is_some_and(Validity::is_short_lived) { MAX_SHORT_LIVED_RETRY_DELAY } else { MAX_RETRY_DELAY };
    let doublings = u32::try_from(count.saturating_sub(1)).unwrap_or(u32::MAX).min(16);
    let delay = (FIRST_RETRY_DELAY << doublings).min(longest);
    let random = share_of_seconds(2 * delay, RETRY_JITTER * share);
    delay - share_of_seconds(delay, RETRY_JITTER) + random
}

/// Returns the part `share`, from 0 to 1, of `of` seconds.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "times of seconds"
)]
fn share_of_seconds(of: u64, share: f64) -> u64 {
    (of as f64 * share.clamp(0.0, 1.0)) as u64
}

/// Returns the beginning of an external text, on one line, with [`MAX_PROBLEM_CHARACTERS`] at most.
pub(super) fn bounded_line(text: &str) -> String {
    shortened_line(text, MAX_PROBLEM_CHARACTERS)
}

/// Returns the first `length` characters of an external text, on one line.
pub(super) fn shortened_line(text: &str, length: usize) -> String {
    text.chars().take(length).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::any;

    const CA: &str = "https://ca.test/dir";
    const NOW: u64 = 1_800_000_000;

    fn plan() -> HostPlan {
        HostPlan { directory: CA.into(), ..HostPlan::default() }
    }

    fn held(age: u64, life: u64) -> CurrentCertificate<'static> {
        CurrentCertificate { validity: Validity { from: NOW - age, until: NOW - age + life }, id: None }
    }

    #[test]
    fn a_certificate_is_ordered_at_once_or_at_its_renewal_time() {
        assert!(HostPlan::default().next_plan_step(NOW, None, CA, NOW + MINUTE).1 <= NOW);
        for (age, life, left) in [(0, 90 * DAY, 60 * DAY), (70 * DAY, 90 * DAY, 0), (0, 6 * DAY, 3 * DAY)] {
            let (step, at) = plan().next_plan_step(NOW, Some(held(age, life)), CA, NOW);
            assert_eq!((step, at.saturating_sub(NOW)), (PlanStep::Order, left), "{age} of {life}");
        }
        // Certificates that are due together are not renewed at the same time.
        assert_eq!(
            plan().next_plan_step(NOW, Some(held(80 * DAY, 90 * DAY)), CA, NOW + 40),
            (PlanStep::Order, NOW + 40)
        );
    }

    #[test]
    fn another_directory_orders_anew() {
        assert_eq!(
            plan().next_plan_step(NOW, Some(held(0, 90 * DAY)), "https://other.test/", NOW + 9),
            (PlanStep::Order, NOW)
        );
    }

    #[test]
    fn two_cas_for_one_host_do_not_alternate_without_limit() {
        let (held, other) = (held(0, 90 * DAY), "https://other.test/");
        let staging = HostPlan::default().after_issuance(NOW - 9, CA, false);
        assert_eq!(
            staging.next_plan_step(NOW, Some(held), other, 0),
            (PlanStep::Order, NOW),
            "production after staging"
        );
        let (mut plan, mut now, mut orders) = (staging, NOW, 0);
        while now < NOW + 7 * DAY {
            // The processes check once a minute, in turn.
            for directory in [other, CA] {
                let (step, at) = plan.next_plan_step(now, Some(held), directory, 0);
                if step == PlanStep::Order && at <= now {
                    plan = HostPlan::from_json(&plan.after_issuance(now, directory, true).to_json());
                    orders += 1;
                }
            }
            now += MINUTE;
        }
        assert_eq!(orders, 7);
        // A renewal is no change of the CA, and is not stopped by a clock that jumps back a year.
        assert_eq!(plan.after_issuance(now, &plan.directory, true).changed, plan.changed);
        assert_eq!(plan.ca_change_time(NOW - 365 * DAY), NOW - 365 * DAY);
    }

    #[test]
    fn a_window_is_followed_but_not_beyond_a_sixth_of_the_life() {
        let held = CurrentCertificate { id: Some("a.b"), ..held(DAY, 90 * DAY) };
        let mut plan = plan();
        assert_eq!(plan.next_plan_step(NOW, Some(held), CA, 0), (PlanStep::Ask, NOW));
        for (window, share, due) in [
            ((NOW + DAY, NOW + 3 * DAY), 0.5, NOW + 2 * DAY),
            ((NOW - 2 * DAY, NOW - DAY), 0.0, NOW - 2 * DAY),
            ((NOW + 365 * DAY, NOW + 366 * DAY), 0.5, held.validity.until - 15 * DAY),
        ] {
            plan.store_renewal_info(NOW, "a.b", Some(window), Some(HOUR), share);
            assert_eq!(plan.renewal_time(NOW, held), due, "{window:?}");
            // An unchanged window retains its point.
            plan.store_renewal_info(NOW, "a.b", Some(window), Some(HOUR), 0.9);
            assert_eq!(plan.renewal_time(NOW, held), due, "{window:?}");
            let step = if due > NOW { (PlanStep::Ask, NOW + HOUR) } else { (PlanStep::Order, due) };
            assert_eq!(plan.next_plan_step(NOW, Some(held), CA, 0), step);
        }
        // A window in the past does not renew the certificate every minute.
        plan.store_renewal_info(NOW, "a.b", Some((NOW - 2 * DAY, NOW - DAY)), Some(HOUR), 0.0);
        plan.renewed = NOW - HOUR;
        assert_eq!(plan.renewal_time(NOW, held), NOW - HOUR + DAY);
        plan.renewed = NOW + DAY;
        assert_eq!(plan.renewal_time(NOW, held), NOW - 2 * DAY, "a clock that was ahead");
        plan.renewed = 0;
        // Information about another certificate is ignored, like missing information.
        plan.renewal = None;
        plan.store_renewal_info(NOW, "a.b", None, None, 0.5);
        assert_eq!(plan.renewal_time(NOW, held), held.validity.from + 60 * DAY);
        assert_eq!(plan.next_plan_step(NOW, Some(held), CA, 0), (PlanStep::Ask, NOW + RENEWAL_INFO_INTERVAL));
        plan.store_renewal_info(NOW, "a.c", Some((1, 2)), None, 0.5);
        assert_eq!(plan.renewal_time(NOW, held), held.validity.from + 60 * DAY);
        // Values are limited to the range from a minute to a day.
        for (wait, ask) in [(0, MINUTE), (90, 90), (9 * DAY, DAY)] {
            plan.store_renewal_info(NOW, "a.b", None, Some(wait), 0.0);
            assert_eq!(plan.renewal.as_ref().unwrap().ask, NOW + ask);
        }
        plan.store_renewal_info(NOW, "a.b", Some((9, 1)), None, 0.5);
        assert_eq!(plan.renewal.unwrap().window, None, "it ends before it begins");
    }

    #[test]
    fn failures_are_tried_again_later_and_later() {
        let mut plan = plan();
        let (mut now, mut delays) = (NOW, Vec::new());
        for _ in 0..8 {
            plan.record_attempt_start(now, None, 0.5);
            plan.record_failed_attempt(PlanStep::Order, now, "no", None, None, 0.5);
            let (step, at) = plan.next_plan_step(now, None, CA, 0);
            assert_eq!(step, PlanStep::Order);
            delays.push((at - now) / MINUTE);
            now = at;
        }
        assert_eq!(delays, [15, 30, 60, 120, 240, 480, 720, 720]);
        assert_eq!(plan.attempts.as_ref().map(|all| (all.since, all.count)), Some((NOW, 8)));
        let short = Some(Validity { from: now, until: now + 6 * DAY });
        plan.record_failed_attempt(PlanStep::Order, now, "no", None, short, 0.5);
        assert_eq!(plan.attempts.as_ref().unwrap().next, now + 3 * HOUR);
        plan.record_failed_attempt(PlanStep::Order, now, "no", Some(5 * HOUR), short, 0.5);
        assert_eq!(plan.attempts.as_ref().unwrap().next, now + 5 * HOUR, "Retry-After");
        plan.record_failed_attempt(PlanStep::Order, now, "no", Some(500 * HOUR), short, 0.5);
        assert_eq!(plan.attempts.as_ref().unwrap().next, now + 7 * DAY);
        assert_eq!(plan.next_plan_step(now, None, CA, 0).1, now + 7 * DAY);
        for (share, minutes) in [(0.0, 12), (1.0, 18)] {
            assert_eq!(delay_after_failures(1, None, share), minutes * MINUTE);
        }
    }

    #[test]
    fn an_attempt_counts_before_its_result_is_known() {
        let mut plan = plan();
        plan.record_attempt_start(NOW, None, 0.5);
        assert_eq!(
            plan.next_plan_step(NOW + 1, None, CA, 0),
            (PlanStep::Order, NOW + 15 * MINUTE),
            "a crash loop asks for nothing"
        );
        plan.order = Some(StoredOrder {
            directory: CA.into(),
            url: "https://ca.test/1".into(),
            key: String::new(),
            resumed: 0,
            record: None,
        });
        assert_eq!(plan.next_plan_step(NOW + 1, None, CA, 0), (PlanStep::Resume, NOW + 1));
        plan.order.as_mut().unwrap().resumed = MAX_IMMEDIATE_RESUMES;
        assert_eq!(plan.next_plan_step(NOW + 1, None, CA, 0), (PlanStep::Resume, NOW + 15 * MINUTE));
        // A failure counts, whether the step began or resumed an order.
        for minutes in [30, 60, 120] {
            plan.record_failed_attempt(PlanStep::Resume, NOW, "no", None, None, 0.5);
            assert_eq!(plan.next_plan_step(NOW, None, CA, 0), (PlanStep::Resume, NOW + minutes * MINUTE));
        }
        plan.attempts = None;
        plan.record_failed_attempt(PlanStep::Resume, NOW, "no", None, None, 0.5);
        assert_eq!(
            plan.next_plan_step(NOW, None, CA, 0),
            (PlanStep::Resume, NOW + 15 * MINUTE),
            "a file without attempts"
        );
    }

    #[test]
    fn failures_are_overdue_after_a_third_of_what_was_left() {
        let mut plan = plan();
        let validity = Validity { from: NOW - 60 * DAY, until: NOW + 30 * DAY };
        plan.record_attempt_start(NOW, Some(validity), 0.5);
        assert!(!plan.is_overdue(NOW + 20 * DAY, Some(validity)), "it may succeed");
        plan.record_failed_attempt(PlanStep::Order, NOW, "no", None, Some(validity), 0.5);
        assert!(!plan.is_overdue(NOW + 9 * DAY, Some(validity)) && plan.is_overdue(NOW + 10 * DAY, Some(validity)));
        assert!(plan.is_overdue(NOW, None));
    }

    #[test]
    fn a_clock_set_back_a_year_does_not_delay_orders() {
        let mut plan = plan();
        plan.record_attempt_start(NOW + 365 * DAY, None, 0.5);
        assert!(plan.next_plan_step(NOW, None, CA, 0).1 <= NOW);
        let held = CurrentCertificate { id: Some("a.b"), ..held(0, 90 * DAY) };
        plan.store_renewal_info(NOW + 365 * DAY, "a.b", None, None, 0.5);
        assert_eq!(plan.next_plan_step(NOW, Some(held), CA, 0), (PlanStep::Ask, NOW));
    }

    #[test]
    fn a_clock_ahead_of_the_cas_does_not_order_repeatedly() {
        for (life, orders) in [(90 * DAY, 3), (6 * DAY, 3), (DAY, 7)] {
            let (mut plan, mut now, mut ordered) = (plan(), NOW, 0);
            while now < NOW + 2 * DAY {
                // By this clock, each certificate expired a year ago.
                let from = now - 365 * DAY;
                let held = CurrentCertificate { validity: Validity { from, until: from + life }, id: Some("a.b") };
                if plan.next_plan_step(now, Some(held), CA, 0) == (PlanStep::Order, plan.renewal_time(now, held))
                    && plan.renewal_time(now, held) <= now
                {
                    plan = plan.after_issuance(now, CA, true);
                    ordered += 1;
                }
                now += MINUTE;
            }
            assert!((orders - 1..=orders).contains(&ordered), "{ordered} in two days, of {life} s");
        }
    }

    #[test]
    fn a_failure_stored_by_a_clock_ahead_delays_no_order() {
        let mut plan = plan();
        plan.record_attempt_start(NOW + 3 * DAY, None, 0.5);
        plan.record_failed_attempt(PlanStep::Order, NOW + 3 * DAY, "no", Some(HOUR), None, 0.5);
        assert_eq!(plan.next_plan_step(NOW, None, CA, 0), (PlanStep::Order, NOW));
        // A stored Retry-After survives a step of the clock.
        assert_eq!(plan.next_plan_step(NOW + 3 * DAY - HOUR, None, CA, 0).1, NOW + 3 * DAY + HOUR);
    }

    #[test]
    fn a_plan_is_stored_and_read_again() {
        let mut plan = plan();
        assert_eq!(HostPlan::from_json(&plan.to_json()), plan);
        plan.record_attempt_start(NOW, None, 0.5);
        plan.record_failed_attempt(PlanStep::Order, NOW, "line\nline", Some(1), None, 0.5);
        plan.store_renewal_info(NOW, "a.b", Some((1, 3)), None, 0.5);
        plan.order = Some(StoredOrder {
            directory: CA.into(),
            url: "https://ca.test/1".into(),
            key: "PEM".into(),
            resumed: 2,
            record: Some(("a.".into(), "b".into())),
        });
        assert_eq!(HostPlan::from_json(&plan.to_json()), plan);
        assert_eq!(plan.attempts.unwrap().problem.unwrap(), "line line");
        for strange in ["null", "[]", "{\"order\": 1, \"attempts\": [], \"renewal\": {\"window\": [1]}}", "7"] {
            let read = HostPlan::from_json(&serde_json::from_str(strange).unwrap());
            assert_eq!((read.order, read.attempts), (None, None), "{strange}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_stored_number_and_no_clock_make_it_panic(
            numbers: [u64; 8], now in 0..1_u64 << 40, from in 0..1_u64 << 40, life in 0..1_u64 << 40, share in any::<f64>(),
        ) {
            let [resumed, since, count, next, start, end, chosen, ask] = numbers;
            let (renewed, changed) = (chosen, start);
            let json = json!({
                "directory": CA, "renewed": renewed, "changed": changed,
                "order": { "directory": CA, "url": "https://ca.test/1", "resumed": resumed },
                "attempts": { "since": since, "count": count, "next": next },
                "renewal": { "certificate": "a.b", "window": [start, end, chosen], "ask": ask },
            });
            let validity = Validity { from, until: from + life };
            let held = CurrentCertificate { validity, id: Some("a.b") };
            let mut plan = HostPlan::from_json(&json);
            for _ in 0..2 {
                let _ = plan.next_plan_step(now, Some(held), CA, 0);
                plan.record_attempt_start(now, Some(validity), share);
                plan.record_failed_attempt(PlanStep::Order, now, "", Some(next), Some(validity), share);
                plan.store_renewal_info(now, "a.b", Some((start, end)), Some(ask), share);
                plan.order = None;
                for directory in [CA, "https://other.test/"] {
                    let (_, at) = plan.next_plan_step(now, Some(held), directory, 0);
                    proptest::prop_assert!(at <= (now + MAX_REFUSAL_RETRY).max(from + life));
                }
            }
        }
    }
}
