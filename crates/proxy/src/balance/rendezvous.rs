//! Selects the server of a client by a consistent hash: every worker and every process with the same servers selects
//! the same one, and no state of clients is kept.
//!
//! Rendezvous hashing (Thaler and Ravishankar, 1998), with weights (Schindelhauer and Schomaker, 2005): each server has
//! a score for the client's key, and the highest wins. Removing a server changes the highest score of its own clients
//! only.

/// Hash of the identity of a client or a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HashKey(u64);

impl HashKey {
    #[cfg(test)]
    pub(super) const NONE: Self = Self(0);

    /// Hashes `bytes` by FNV-1a, with MurmurHash3's last step, because neighbours among addresses differ in a bit or
    /// two. The function never changes: processes of different versions have to agree. It is no secret, and a client
    /// that chooses a key chooses a server, as with many requests with one key.
    pub(crate) fn from_identity(bytes: &[u8]) -> Self {
        const BASIS: u64 = 0xcbf2_9ce4_8422_2325;
        const PRIME: u64 = 0x0100_0000_01b3;
        Self(mix_bits(bytes.iter().fold(BASIS, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(PRIME))))
    }
}

const fn mix_bits(mut hash: u64) -> u64 {
    hash ^= hash >> 33;
    hash = hash.wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash ^= hash >> 33;
    hash = hash.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ (hash >> 33)
}

/// The number of the server that `client` is assigned to, of `servers`, each with its number, key and weight.
pub(crate) fn rendezvous_server(
    client: HashKey,
    servers: impl Iterator<Item = (usize, HashKey, u32)>,
) -> Option<usize> {
    let mut highest: Option<(usize, f64)> = None;
    for (number, server, weight) in servers {
        let score = rendezvous_score(client, server, weight);
        if highest.is_none_or(|(_, highest)| score > highest) {
            highest = Some((number, score));
        }
    }
    highest.map(|(number, _)| number)
}

/// Score of `server` for `client`. Each pair has a number from 0 to 1, whose logarithm makes the chance of the highest
/// score proportional to the weight.
fn rendezvous_score(client: HashKey, server: HashKey, weight: u32) -> f64 {
    /// Bits of the number: one half is added, which keeps the number from 0 and 1.
    const BITS: u32 = 52;
    let hash = mix_bits(client.0 ^ server.0) >> (u64::BITS - BITS);
    #[expect(clippy::cast_precision_loss, reason = "both have 52 bits, which an f64 holds exactly")]
    let part = (hash as f64 + 0.5) / (1_u64 << BITS) as f64;
    f64::from(weight) / -part.ln()
}

#[cfg(test)]
mod tests {
    use super::*;
    use litequic_config::OriginConfig;
    use proptest::prelude::*;

    fn servers(weights: &[u32]) -> Vec<(usize, HashKey, u32)> {
        let one = |(number, weight): (usize, &u32)| {
            (number, HashKey::from_identity(format!("http://10.0.0.{number}:8080").as_bytes()), *weight)
        };
        weights.iter().enumerate().map(one).collect()
    }

    fn client(number: u32) -> HashKey {
        HashKey::from_identity(&number.to_be_bytes())
    }

    /// Another process, or another version, must compute the same.
    #[test]
    fn the_server_of_a_client_is_the_same_for_ever() {
        let servers = servers(&[1000, 1000, 3000]);
        let found: Vec<_> = (0..16).map(|n| rendezvous_server(client(n), servers.iter().copied()).unwrap()).collect();
        assert_eq!(found, [0, 2, 2, 1, 2, 1, 0, 2, 2, 2, 2, 0, 0, 2, 2, 0]);
        assert_eq!(rendezvous_server(client(0), std::iter::empty()), None);
    }

    #[test]
    fn clients_are_spread_by_weight() {
        const CLIENTS: u32 = 40_000;
        for weights in [&[1000, 1000][..], &[1000, 1000, 1000, 1000, 1000], &[3000, 1000], &[1000, 10, 4000]] {
            let servers = servers(weights);
            let mut counts = vec![0_u32; weights.len()];
            for n in 0..CLIENTS {
                counts[rendezvous_server(client(n), servers.iter().copied()).unwrap()] += 1;
            }
            let total = f64::from(weights.iter().sum::<u32>());
            for (count, weight) in counts.iter().zip(weights) {
                let share = f64::from(*weight) / total;
                // Five standard deviations.
                let slack = 5.0 * (f64::from(CLIENTS) * share * (1.0 - share)).sqrt();
                assert!((f64::from(*count) - f64::from(CLIENTS) * share).abs() < slack, "{counts:?} of {weights:?}");
            }
        }
    }

    proptest! {
        #[test]
        fn without_a_server_its_own_clients_alone_move(
            weights in prop::collection::vec(1..=256_000_u32, 2..=OriginConfig::MAX_SERVERS),
            lost in any::<prop::sample::Index>(),
            clients in prop::collection::vec(any::<u32>(), 1..100),
        ) {
            let all = servers(&weights);
            let lost = lost.index(all.len());
            for one in clients.into_iter().map(client) {
                let before = rendezvous_server(one, all.iter().copied()).unwrap();
                let after = rendezvous_server(one, all.iter().copied().filter(|(number, ..)| *number != lost)).unwrap();
                let as_expected = if before == lost { after != lost } else { after == before };
                prop_assert!(as_expected, "{before} {after} without {lost}");
            }
        }

        /// A slow start so brings a server's clients back, and moves no others.
        #[test]
        fn a_server_whose_weight_grows_gets_clients_and_loses_none(
            weights in prop::collection::vec(1..=256_000_u32, 2..=OriginConfig::MAX_SERVERS),
            grows in any::<prop::sample::Index>(),
            clients in prop::collection::vec(any::<u32>(), 1..100),
        ) {
            let before = servers(&weights);
            let grows = grows.index(before.len());
            let mut after = before.clone();
            after[grows].2 *= 2;
            for one in clients.into_iter().map(client) {
                let found = [&before, &after].map(|servers| rendezvous_server(one, servers.iter().copied()).unwrap());
                prop_assert!(found[0] == found[1] || found[1] == grows);
            }
        }
    }
}
