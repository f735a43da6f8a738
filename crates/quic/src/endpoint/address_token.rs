//! Issues and checks address validation tokens for Retry (RFC 9000 §8.1.2), valid on every worker with the same
//! [`Secrets`].
//!
//! ```text
//! kind (1) · issue time, UNIX seconds (4) · length of the original destination connection ID (1) · that ID (20) ·
//! tag (32)
//! ```
//!
//! The tag is an HMAC-SHA256 over the fields before, the client's address and port, its connection ID, and the
//! connection ID of the Retry: RFC 9000 §8.1.4 requires the address, and s2n-quic's own provider binds the client's ID
//! as well. The client sends its next Initial to the Retry's ID (§17.2.5.2), which s2n-quic then adopts unseen: an ID
//! of the client's choice could be that of another worker or connection. The key changes every hour, by the issue time.
//!
//! Tokens, unlike stateless resets, are not bound to the endpoint: the owner of one has validated an address, which
//! counts at every address of the server, and replicas behind a balancer may have different ones.
//!
//! No tokens are issued for later connections (NEW_TOKEN): s2n-quic 1.91 never requests one.

use super::{admission::client_ip, endpoint_state::EndpointState};
use crate::{connection::datagram_client, identity::Secrets};
use aws_lc_rs::hmac;
use s2n_quic::provider::{
    address_token::{Context, Format as TokenFormat, Provider},
    endpoint_limits::Outcome,
};
use s2n_quic_core::connection::{InitialId, LocalId};
use std::{
    collections::HashSet,
    convert::Infallible,
    mem,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::{Instant, SystemTime, UNIX_EPOCH},
};

/// Lifetime of a token after a Retry: a lost Initial is sent again after 1, 3 and 7 seconds (RFC 9002 §6.2), then the
/// client or litequic has given up.
const TOKEN_LIFETIME_SECS: u32 = 10;
/// Tolerated clock skew between two processes with one secret.
const CLOCK_SKEW_SECS: u32 = 2;
/// Time for which one key signs.
const KEY_PERIOD_SECS: u32 = 3600;
/// Tokens remembered in each half of the filter: a core completes a few thousand handshakes a second.
const MAX_USED_TOKENS: usize = 32 * 1024;

const KIND_RETRY: u8 = 1;
/// RFC 9000 §17.2.
const MAX_ID_LEN: usize = 20;
const TAG_LEN: usize = 32;
const BODY_LEN: usize = 1 + 4 + 1 + MAX_ID_LEN;
const TOKEN_LEN: usize = BODY_LEN + TAG_LEN;

/// Issues and checks tokens for one endpoint.
#[derive(Debug)]
pub(super) struct AddressTokenFormat {
    signer: TokenSigner,
    used: UsedTokens,
    clock: TokenClock,
    state: Arc<EndpointState>,
}

impl AddressTokenFormat {
    /// Tokens of the endpoint with `state`.
    pub(super) fn new(secrets: Arc<Secrets>, state: Arc<EndpointState>) -> Self {
        Self {
            signer: TokenSigner { secrets, keys: [None, None] },
            used: UsedTokens::default(),
            clock: TokenClock::new(),
            state,
        }
    }
}

impl Provider for AddressTokenFormat {
    type Format = Self;
    type Error = Infallible;

    fn start(self) -> Result<Self, Infallible> {
        Ok(self)
    }
}

impl TokenFormat for AddressTokenFormat {
    const TOKEN_LEN: usize = TOKEN_LEN;

    fn generate_new_token(&mut self, _: &mut Context<'_>, _: &LocalId, _: &mut [u8]) -> Option<()> {
        None
    }

    fn generate_retry_token(&mut self, context: &mut Context<'_>, id: &InitialId, output: &mut [u8]) -> Option<()> {
        let client = TokenClient::from_context(context, self.state.retry_ids.lock().issued?)?;
        let token = self.signer.sign_token(&client, id.as_bytes(), self.clock.read_time().now)?;
        output.get_mut(..TOKEN_LEN)?.copy_from_slice(&token);
        Some(())
    }

    fn validate_token(&mut self, context: &mut Context<'_>, token: &[u8]) -> Option<InitialId> {
        let id = self.state.retry_ids.lock().addressed?;
        let (time, client) = (self.clock.read_time(), TokenClient::from_context(context, id)?);
        let valid = self.signer.verify_token(&client, token, time.now);
        let valid = valid.or_else(|| self.signer.verify_token(&client, token, time.before_jump?));
        let Some(valid) = valid else {
            self.state.metrics.retry_tokens_refused.increment();
            return None;
        };
        // s2n-quic's limiter passes every client with a token: a flood with real addresses must stop here. This hook
        // cannot reject, only drop. A drop does not use the token up: the client will send the same one again.
        (self.state.admission.decide_attempt(client_ip(&context.remote_address), true) == Outcome::allow())
            .then_some(())?;
        if !self.used.mark_used(valid.tag, time.running) {
            self.state.metrics.retry_tokens_refused.increment();
            return None;
        }
        InitialId::try_from_bytes(valid.original_id)
    }
}

/// The client that a token is bound to.
#[derive(Debug, Clone, PartialEq, Eq)]
struct TokenClient {
    /// IPv4 as 4 bytes, IPv6 as 16, the port behind either.
    address: Vec<u8>,
    connection_id: Vec<u8>,
    /// Source connection ID of the Retry, and destination connection ID of the next Initial.
    retry_id: Vec<u8>,
}

impl TokenClient {
    fn from_context(context: &Context<'_>, retry_id: LocalId) -> Option<Self> {
        let client = datagram_client(SocketAddr::from(&context.remote_address));
        let ip = match client.ip() {
            IpAddr::V4(ip) => ip.octets().to_vec(),
            IpAddr::V6(ip) => ip.octets().to_vec(),
        };
        let address = [&ip[..], &client.port().to_be_bytes()].concat();
        let connection_id = context.peer_connection_id.to_vec();
        Some(Self { address, connection_id, retry_id: retry_id.as_bytes().to_vec() })
    }
}

#[derive(Debug, PartialEq, Eq)]
struct ValidToken<'a> {
    original_id: &'a [u8],
    tag: [u8; TAG_LEN],
}

/// Signs and verifies tokens; the time is an argument.
#[derive(Debug)]
struct TokenSigner {
    secrets: Arc<Secrets>,
    /// Keys of two adjacent periods with their numbers, at the parity of the period.
    keys: [Option<(u32, hmac::Key)>; 2],
}

impl TokenSigner {
    fn sign_token(&mut self, client: &TokenClient, original_id: &[u8], now: u32) -> Option<[u8; TOKEN_LEN]> {
        let mut token = [0; TOKEN_LEN];
        let (body, tag) = token.split_at_mut(BODY_LEN);
        let (head, id) = body.split_at_mut(BODY_LEN - MAX_ID_LEN);
        let [t0, t1, t2, t3] = now.to_be_bytes();
        head.copy_from_slice(&[KIND_RETRY, t0, t1, t2, t3, u8::try_from(original_id.len()).ok()?]);
        id.get_mut(..original_id.len())?.copy_from_slice(original_id);
        tag.copy_from_slice(hmac::sign(self.period_key(now), &signed_bytes(body, client)).as_ref());
        Some(token)
    }

    fn verify_token<'a>(&mut self, client: &TokenClient, token: &'a [u8], now: u32) -> Option<ValidToken<'a>> {
        let (body, tag) = token.split_at_checked(BODY_LEN)?;
        let tag = <[u8; TAG_LEN]>::try_from(tag).ok()?;
        let &[KIND_RETRY, t0, t1, t2, t3, id_len, ref id @ ..] = body else { return None };
        let issued = u32::from_be_bytes([t0, t1, t2, t3]);
        // The time is checked before the tag: a key is derived only for a time near now.
        let alive = issued <= now.saturating_add(CLOCK_SKEW_SECS) && now.saturating_sub(issued) <= TOKEN_LIFETIME_SECS;
        if !alive {
            return None;
        }
        // Verification takes constant time.
        hmac::verify(self.period_key(issued), &signed_bytes(body, client), &tag).ok()?;
        Some(ValidToken { original_id: id.get(..usize::from(id_len))?, tag })
    }

    fn period_key(&mut self, time: u32) -> &hmac::Key {
        let period = time / KEY_PERIOD_SECS;
        let [even, odd] = &mut self.keys;
        let slot = if period.is_multiple_of(2) { even } else { odd };
        if slot.as_ref().is_some_and(|(of, _)| *of != period) {
            *slot = None;
        }
        let (_, key) = slot.get_or_insert_with(|| (period, self.secrets.retry_key(period)));
        key
    }
}

/// Bytes that the tag covers. The token's own part has a fixed length and the address one of two, which the lengths of
/// the connection IDs distinguish: no two inputs have the same bytes.
fn signed_bytes(body: &[u8], client: &TokenClient) -> Vec<u8> {
    let len = |id: &[u8]| [u8::try_from(id.len()).unwrap_or(u8::MAX)];
    let TokenClient { address, connection_id, retry_id } = client;
    [body, &len(connection_id), connection_id, &len(retry_id), retry_id, address].concat()
}

/// Filter of used tokens: each is valid once (RFC 9000 §8.1.4). A worker's own filter is enough, as a token is bound to
/// an address and port, which the kernel hashes to one worker.
#[derive(Debug, Default)]
struct UsedTokens {
    recent: HashSet<[u8; TAG_LEN]>,
    older: HashSet<[u8; TAG_LEN]>,
    /// Begin of `recent`, in seconds.
    since: u32,
}

impl UsedTokens {
    /// Remembers the tag of a token for the token's lifetime. False if the token was used before, or if the filter is
    /// full.
    fn mark_used(&mut self, tag: [u8; TAG_LEN], now: u32) -> bool {
        if now.saturating_sub(self.since) > TOKEN_LIFETIME_SECS + CLOCK_SKEW_SECS || now < self.since {
            self.older = mem::take(&mut self.recent);
            self.since = now;
        }
        !self.older.contains(&tag) && self.recent.len() < MAX_USED_TOKENS && self.recent.insert(tag)
    }
}

/// Clock of tokens: the system's, on which all processes with one secret agree. A token issued before the system's
/// clock was set keeps its age: a handshake does not fail because of that.
#[derive(Debug)]
struct TokenClock {
    began: Instant,
    jumps: ClockJumps,
}

/// One reading of [`TokenClock`], in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct TokenTime {
    /// Seconds since 1970; wraps in 2106, when tokens fail for ten seconds.
    now: u32,
    /// Time that an unset clock would show; `None` if the clock was not set within a token's lifetime.
    before_jump: Option<u32>,
    /// Seconds since the clock was created, independent of the system's clock.
    running: u32,
}

impl TokenClock {
    fn new() -> Self {
        Self { began: Instant::now(), jumps: ClockJumps::default() }
    }

    fn read_time(&mut self) -> TokenTime {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        self.jumps.token_time(now, self.began.elapsed().as_secs())
    }
}

/// Detects when the system's clock was set, by its difference to a monotonic clock. Pure.
#[derive(Debug, Default)]
struct ClockJumps {
    /// Seconds by which the system's clock is ahead; `None` before the first reading.
    ahead: Option<u64>,
    /// Value of `ahead` before the last jump, and the monotonic time at which that was noticed.
    before: Option<(u64, u64)>,
}

impl ClockJumps {
    /// Returns the time for `system` seconds of the system's clock and `running` seconds of the monotonic one. Within
    /// [`CLOCK_SKEW_SECS`] the system's clock may be adjusted.
    #[expect(clippy::cast_possible_truncation, reason = "both wrap, as documented")]
    fn token_time(&mut self, system: u64, running: u64) -> TokenTime {
        let ahead = system.wrapping_sub(running);
        let last = self.ahead.replace(ahead);
        if let Some(last) = last
            && last.wrapping_sub(ahead).min(ahead.wrapping_sub(last)) > u64::from(CLOCK_SKEW_SECS)
        {
            self.before = Some((last, running));
        }
        let recent = self.before.filter(|(_, at)| running.saturating_sub(*at) <= u64::from(TOKEN_LIFETIME_SECS));
        let before_jump = recent.map(|(ahead, _)| ahead.wrapping_add(running) as u32);
        TokenTime { now: system as u32, before_jump, running: running as u32 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        endpoint::admission::{Admission, SourceLimits},
        metrics::QuicMetrics,
    };
    use litequic_config::{Config, Limits};
    use proptest::prelude::*;
    use s2n_quic_core::{connection::PeerId, inet::SocketAddress, random};

    const NOW: u32 = 1_800_000_000;
    const ORIGINAL_ID: &[u8] = b"original id";

    fn signer(secret: u8) -> TokenSigner {
        TokenSigner { secrets: Arc::new(Secrets::from_secret(&[secret; 32])), keys: [None, None] }
    }

    fn client() -> TokenClient {
        let address = vec![192, 0, 2, 1, 0x1f, 0x90];
        TokenClient { address, connection_id: b"peer".to_vec(), retry_id: b"the retry's ID, ".to_vec() }
    }

    fn token() -> [u8; TOKEN_LEN] {
        signer(1).sign_token(&client(), ORIGINAL_ID, NOW).unwrap()
    }

    #[test]
    fn a_token_is_good_on_another_worker() {
        let token = token();
        let valid = signer(1).verify_token(&client(), &token, NOW + 1).unwrap();
        assert_eq!(valid.original_id, ORIGINAL_ID);
    }

    #[test]
    fn a_token_is_good_for_its_client_alone() {
        let table = [
            ("another address", TokenClient { address: vec![192, 0, 2, 2, 0x1f, 0x90], ..client() }),
            ("another port", TokenClient { address: vec![192, 0, 2, 1, 0x1f, 0x91], ..client() }),
            ("another connection ID", TokenClient { connection_id: b"poor".to_vec(), ..client() }),
            ("a longer connection ID", TokenClient { connection_id: b"peer\0".to_vec(), ..client() }),
            ("another ID than the Retry's", TokenClient { retry_id: b"another's ID, 16".to_vec(), ..client() }),
            ("a shorter one", TokenClient { retry_id: b"the ".to_vec(), ..client() }),
            ("a longer one", TokenClient { retry_id: b"the retry's ID, and on".to_vec(), ..client() }),
            ("lengths that shift", TokenClient { connection_id: b"peer\x10the".to_vec(), ..client() }),
        ];
        for (what, other) in table {
            assert_eq!(signer(1).verify_token(&other, &token(), NOW), None, "{what}");
        }
        assert_eq!(signer(2).verify_token(&client(), &token(), NOW), None, "another secret");
    }

    #[test]
    fn setting_the_clock_does_not_change_the_age_of_a_token() {
        const HOUR: i64 = 3600;
        // Seconds from issue to check, seconds by which the clock was set meanwhile, and the result.
        let table = [
            (1, HOUR, true),
            (1, -HOUR, true),
            (10, HOUR, true),
            (10, -HOUR, true),
            (11, HOUR, false),
            (11, -HOUR, false),
            (11, 0, false),
            (1, 0, true),
            (9, 1, true),
        ];
        for (later, set, good) in table {
            let mut jumps = ClockJumps::default();
            let system = u64::from(NOW);
            assert_eq!(jumps.token_time(system, 50), TokenTime { now: NOW, before_jump: None, running: 50 });
            let time = jumps.token_time((system + later).checked_add_signed(set).unwrap(), 50 + later);
            let checked = [Some(time.now), time.before_jump].into_iter().flatten();
            let mut checked = checked.filter(|now| signer(1).verify_token(&client(), &token(), *now).is_some());
            assert_eq!(checked.next().is_some(), good, "{later} s later, set by {set} s");
        }
    }

    #[test]
    fn the_time_before_a_clock_jump_counts_for_a_token_lifetime() {
        let mut jumps = ClockJumps::default();
        for (system, running, before_jump) in [
            (1000, 0, None),
            (1001, 1, None),
            (1004, 2, None), // The clock was adjusted by less than a jump.
            (5000, 3, Some(1005)),
            (5010, 13, Some(1015)),
            (5011, 14, None),
            (0, 15, Some(5012)), // The clock is set to before 1970.
            (5013, 16, Some(1)),
        ] {
            let time = jumps.token_time(system, running);
            assert_eq!(time, TokenTime { now: u32::try_from(system).unwrap(), before_jump, running: time.running });
            assert_eq!(u64::from(time.running), running);
        }
    }

    #[test]
    fn a_token_lives_for_its_lifetime() {
        let table = [(-2, true), (-3, false), (0, true), (10, true), (11, false), (100_000, false)];
        for (later, good) in table {
            let now = NOW.checked_add_signed(later).unwrap();
            assert_eq!(signer(1).verify_token(&client(), &token(), now).is_some(), good, "{later} s later");
        }
    }

    #[test]
    fn a_token_outlives_the_change_of_keys() {
        let mut signer = signer(1);
        let last = NOW / KEY_PERIOD_SECS * KEY_PERIOD_SECS - 1;
        let old = signer.sign_token(&client(), ORIGINAL_ID, last).unwrap();
        let new = signer.sign_token(&client(), ORIGINAL_ID, last + 1).unwrap();
        assert!(signer.verify_token(&client(), &old, last + 2).is_some());
        assert!(signer.verify_token(&client(), &new, last + 2).is_some());
        // This period's slot held the key of an older period.
        let later = signer.sign_token(&client(), ORIGINAL_ID, last + 1 + KEY_PERIOD_SECS).unwrap();
        assert!(signer.verify_token(&client(), &later, last + 1 + KEY_PERIOD_SECS).is_some());
    }

    #[test]
    fn no_bit_of_a_token_can_be_changed() {
        for bit in 0..TOKEN_LEN * 8 {
            let mut token = token();
            token[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(signer(1).verify_token(&client(), &token, NOW), None, "bit {bit}");
        }
    }

    #[test]
    fn a_token_is_good_once() {
        let mut used = UsedTokens::default();
        assert!(used.mark_used([1; 32], NOW));
        assert!(used.mark_used([2; 32], NOW + TOKEN_LIFETIME_SECS));
        // The halves of the filter are swapped, and the token is still found.
        for later in [0, TOKEN_LIFETIME_SECS, TOKEN_LIFETIME_SECS + CLOCK_SKEW_SECS] {
            assert!(!used.mark_used([1; 32], NOW + later), "{later} s later");
        }
        assert!(used.mark_used([3; 32], NOW + TOKEN_LIFETIME_SECS + CLOCK_SKEW_SECS + 1));
        assert!(!used.mark_used([2; 32], NOW + TOKEN_LIFETIME_SECS + CLOCK_SKEW_SECS + 1));
    }

    /// A random generator for tokens, which use no random numbers.
    struct NoRandomness;

    impl random::Generator for NoRandomness {
        fn public_random_fill(&mut self, _: &mut [u8]) {}
        fn private_random_fill(&mut self, _: &mut [u8]) {}
    }

    #[test]
    fn a_token_dropped_by_a_flooded_worker_stays_valid() {
        let metrics = Arc::<QuicMetrics>::default();
        let origin = "http://origin".parse().unwrap();
        let config = Config::with_defaults(([127, 0, 0, 1], 0).into(), origin, "".into(), "".into()).into_live();
        let pools = SourceLimits::default();
        let admission = Admission::new(Arc::clone(&config), Arc::clone(&metrics), pools.clone(), <_>::default());
        let state = EndpointState::with_admission(config, Arc::clone(&metrics), admission);
        let mut format = AddressTokenFormat::new(Arc::new(Secrets::from_secret(&[1; 32])), Arc::clone(&state));
        let (address, peer) = (SocketAddress::default(), PeerId::try_from_bytes(b"peer").unwrap());
        let mut random = NoRandomness;
        let mut context = Context::new(&address, &peer, &mut random);
        let id = InitialId::try_from_bytes(ORIGINAL_ID).unwrap();
        let mut token = [0; TOKEN_LEN];
        state.retry_ids.lock().issued = Some(LocalId::try_from_bytes(&[7; 16]).unwrap());
        state.retry_ids.lock().record_addressed(&[7; 16]);
        format.generate_retry_token(&mut context, &id, &mut token).unwrap();

        let flood: Vec<_> = (0..Limits::default().max_handshakes).map(|_| pools.take_slots(None)).collect();
        assert_eq!(format.validate_token(&mut context, &token), None);
        drop(flood);
        assert_eq!(format.validate_token(&mut context, &token), Some(id));
        assert_eq!(metrics.retry_tokens_refused.get(), 0);
        assert_eq!(format.validate_token(&mut context, &token), None, "twice");
        assert_eq!(format.validate_token(&mut context, b"another one's"), None);
        assert_eq!(metrics.retry_tokens_refused.get(), 2);
    }

    #[test]
    fn a_full_filter_rejects_new_tokens() {
        let mut used = UsedTokens::default();
        let tag = |n: usize| std::array::from_fn(|i| n.to_be_bytes().get(i).copied().unwrap_or_default());
        assert!((0..MAX_USED_TOKENS).all(|n| used.mark_used(tag(n), NOW)));
        assert!(!used.mark_used(tag(MAX_USED_TOKENS), NOW));
        assert!(used.mark_used(tag(MAX_USED_TOKENS), NOW + 2 * TOKEN_LIFETIME_SECS));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_are_no_token(token in proptest::collection::vec(any::<u8>(), 0..100), fresh: bool) {
            let mut token = token;
            if fresh && token.len() >= 5 {
                token[0] = KIND_RETRY;
                token[1..5].copy_from_slice(&NOW.to_be_bytes());
            }
            prop_assert_eq!(signer(1).verify_token(&client(), &token, NOW), None);
        }

        #[test]
        fn every_id_comes_back(id in proptest::collection::vec(any::<u8>(), 0..=20)) {
            let token = signer(1).sign_token(&client(), &id, NOW).unwrap();
            let valid = signer(1).verify_token(&client(), &token, NOW).unwrap();
            prop_assert_eq!(valid.original_id, &id[..]);
        }
    }
}
