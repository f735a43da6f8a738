//! Provides the limits of a new connection or request, by the configuration in force.

use super::client_deadline::MinimumRate;
use arc_swap::Cache;
use litequic_config::{Config, Limits, LiveConfig, Timeouts};
use std::{cell::RefCell, rc::Rc, sync::Arc};

/// Limits of a connection or a request, by the configuration that was in force when it began.
#[derive(Debug)]
pub struct Terms {
    /// Section `limits` of the configuration.
    pub limits: Limits,
    /// Section `timeouts` of the configuration.
    pub timeouts: Timeouts,
    /// Limits of a header and of trailers.
    pub field_limits: FieldLimits,
    /// Whether clients may switch protocols.
    pub has_tunnels: bool,
    /// The whole configuration.
    pub config: Arc<Config>,
}

/// Limits of a message's fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FieldLimits {
    /// Bytes, as HTTP/2 and HTTP/3 count them (RFC 9113 §6.5.2, RFC 9114 §4.2.2): name + value + 32 for each line. The
    /// pseudo-header fields that an HTTP/1.1 request would have there count as well.
    pub bytes: usize,
    /// Number of fields. Pseudo-header fields and `host` do not count, and all lines of `cookie` are one (RFC 9113
    /// §8.2.3, RFC 9114 §4.2.1).
    pub fields: usize,
}

/// The current terms of one worker, which follow its configuration.
#[derive(Debug)]
pub struct CurrentTerms(RefCell<TermsCache>);

#[derive(Debug)]
struct TermsCache {
    /// Reading the configuration in force costs a comparison.
    config: Cache<LiveConfig, Arc<Config>>,
    terms: Rc<Terms>,
}

impl Terms {
    fn for_config(config: Arc<Config>) -> Self {
        let Config { limits, timeouts, .. } = *config;
        let field_limits = FieldLimits { bytes: limits.max_header_bytes as usize, fields: limits.max_headers as usize };
        Self { limits, timeouts, field_limits, has_tunnels: config.permits_tunnels(), config }
    }

    /// Returns the minimum rate of a request's body.
    pub fn minimum_upload_rate(&self) -> MinimumRate {
        MinimumRate {
            idle_timeout: self.timeouts.request_body,
            rate: self.limits.min_rate,
            grace: self.limits.rate_grace,
        }
    }

    /// Returns the minimum rate at which a client reads a response.
    pub fn minimum_download_rate(&self) -> MinimumRate {
        MinimumRate { idle_timeout: self.timeouts.send, rate: self.limits.min_rate, grace: self.limits.rate_grace }
    }
}

impl FieldLimits {
    /// Unlimited bytes and fields.
    pub const NONE: Self = Self { bytes: usize::MAX, fields: usize::MAX };
}

impl CurrentTerms {
    /// Creates the terms of `config`.
    pub fn new(config: LiveConfig) -> Self {
        let terms = Rc::new(Terms::for_config(config.load_full()));
        Self(RefCell::new(TermsCache { config: Cache::new(config), terms }))
    }

    /// Returns the terms in force, for a new connection or request.
    pub fn load_terms(&self) -> Rc<Terms> {
        let TermsCache { config, terms } = &mut *self.0.borrow_mut();
        let config = config.load();
        if !Arc::ptr_eq(config, &terms.config) {
            *terms = Rc::new(Terms::for_config(Arc::clone(config)));
        }
        Rc::clone(terms)
    }
}
