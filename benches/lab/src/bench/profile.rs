//! A profile by part: which of sending, receiving, ACKs, cryptography … a sample belongs to, by the symbols of its
//! stack. Pure. What the kernel does on the way of a call counts to that call, soft interrupts included; in user space
//! the innermost function decides, for programs are seldom built with frame pointers.

use std::collections::BTreeMap;

/// Kernel functions anywhere in a stack, and the part they belong to. The first match decides: sending over loopback
/// delivers to the receiver within the call.
const KERNEL: [(&str, &str); 17] = [
    ("udp_sendmsg", "sending"),
    ("udpv6_sendmsg", "sending"),
    ("__sys_sendmmsg", "sending"),
    ("udp_recvmsg", "receiving"),
    ("udpv6_recvmsg", "receiving"),
    ("__sys_recvmmsg", "receiving"),
    ("tcp_sendmsg", "origin I/O"),
    ("tcp_recvmsg", "origin I/O"),
    ("tcp_v4_rcv", "origin I/O"),
    ("tcp_v6_rcv", "origin I/O"),
    ("inet_stream_connect", "origin I/O"),
    ("unix_stream", "origin I/O"),
    ("sock_read_iter", "origin I/O"),
    ("sock_write_iter", "origin I/O"),
    ("udp4_lib_rcv", "receiving"),
    ("udp6_lib_rcv", "receiving"),
    ("epoll_wait", "waiting"),
];

/// Words of a user-space function's name, and the part it belongs to; the first match decides.
const USER: [(&[&str], &str); 5] = [
    (
        &[
            "aes",
            "gcm",
            "ghash",
            "gmult",
            "aead",
            "evp",
            "chacha",
            "chacha20",
            "poly1305",
            "sha256",
            "sha512",
            "hkdf",
            "hmac",
            "x25519",
            "curve25519",
            "p256",
            "ecp",
            "bn",
            "seal",
            "aesni",
            "vaes",
            "crypto",
            "cipher",
        ],
        "crypto",
    ),
    (&["memcpy", "memmove", "memset"], "copying"),
    (
        &[
            "ack",
            "acks",
            "acked",
            "acknowledged",
            "loss",
            "lost",
            "recovery",
            "rtt",
            "cubic",
            "congestion",
            "bbr",
            "ackhandler",
            "pacer",
            "cc",
        ],
        "ACK processing",
    ),
    (
        &["h3", "http3", "qpack", "http", "http1", "hyper", "header", "headers", "proxy", "h1", "upstream", "htx"],
        "HTTP",
    ),
    (
        &[
            "quic",
            "packet",
            "packets",
            "frame",
            "frames",
            "stream",
            "streams",
            "transmit",
            "transmission",
            "datagram",
            "qc",
            "qcs",
            "quicly",
        ],
        "QUIC",
    ),
];

/// The shares of all samples, in percent, by part, of what `perf script -F comm,ip,sym,dso` printed. `None`: no
/// samples.
pub(super) fn shares(script: &str) -> Option<BTreeMap<String, f64>> {
    let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
    let mut all = 0;
    for sample in script.split("\n\n") {
        let frames: Vec<(&str, bool)> = sample.lines().filter_map(frame).collect();
        if frames.is_empty() {
            continue;
        }
        *counts.entry(part(&frames)).or_default() += 1;
        all += 1;
    }
    let share = |count: u32| 100.0 * f64::from(count) / f64::from(all);
    (all > 0).then(|| counts.into_iter().map(|(part, count)| (format!("share/{part}"), share(count))).collect())
}

/// A line of a stack, `  ffffffff81000000 symbol+0x1 (object)`: symbol, and whether it is the kernel's.
fn frame(line: &str) -> Option<(&str, bool)> {
    let (address, rest) = line.trim_start().split_once(' ')?;
    // The line before the stack is the command's name, not indented.
    if !line.starts_with(char::is_whitespace) || !address.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let (symbol, object) = rest.rsplit_once(" (").unwrap_or((rest, ""));
    Some((symbol, object.starts_with('[') && !object.starts_with("[vdso]")))
}

/// Innermost frame first.
fn part(frames: &[(&str, bool)]) -> &'static str {
    let is_kernel = frames.first().is_some_and(|(_, kernel)| *kernel);
    if is_kernel {
        let told = KERNEL
            .iter()
            .find(|(function, _)| frames.iter().any(|(symbol, kernel)| *kernel && symbol.contains(function)));
        return told.map_or("other system", |(_, part)| part);
    }
    let words = words(frames.first().map_or("", |(symbol, _)| symbol));
    let told = USER.iter().find(|(known, _)| {
        words.iter().any(|word| {
            known.iter().any(|known| word == known || (known.starts_with("mem") && word.starts_with(known)))
        })
    });
    told.map_or("rest", |(_, part)| part)
}

/// A name's words, lower case: `on_ack_frame`, `Http3Stream::Read`, `ackhandler.(*sentPacketHandler)`.
fn words(symbol: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut before_lower = false;
    for c in symbol.chars() {
        let new = !c.is_ascii_alphanumeric() || (c.is_ascii_uppercase() && before_lower);
        before_lower = c.is_ascii_lowercase() || c.is_ascii_digit();
        if new && words.last().is_some_and(|word| !word.is_empty()) {
            words.push(String::new());
        }
        if c.is_ascii_alphanumeric()
            && let Some(word) = words.last_mut()
        {
            word.push(c.to_ascii_lowercase());
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(symbol: &str) -> &'static str {
        part(&[(symbol, false)])
    }

    #[test]
    fn a_kernel_stack_belongs_to_the_call_it_serves() {
        let sending = [
            ("copy_to_user", true),
            ("udp_recvmsg", true),
            ("do_softirq", true),
            ("udp_sendmsg", true),
            ("main", false),
        ];
        assert_eq!(part(&sending), "sending", "delivery over loopback is the sender's");
        assert_eq!(part(&[("copy", true), ("tcp_recvmsg_locked", true)]), "origin I/O");
        assert_eq!(part(&[("schedule", true), ("do_epoll_wait", true)]), "waiting");
        assert_eq!(part(&[("page_fault", true)]), "other system");
    }

    #[test]
    fn functions_are_matched_by_whole_words() {
        assert_eq!(user("aes_gcm_encrypt_avx512"), "crypto");
        assert_eq!(user("s2n_quic_transport::recovery::manager::on_ack_frame"), "ACK processing");
        assert_eq!(user("ackhandler.(*sentPacketHandler).ReceivedAck"), "ACK processing");
        assert_eq!(user("ngx_http_v3_parse"), "HTTP");
        assert_eq!(user("callback_stack_unpack"), "rest", "no ack in it");
        assert_eq!(user("__memmove_avx512_unaligned_erms"), "copying");
        assert_eq!(user("quic::Http3Stream"), "HTTP");
        assert_eq!(user("qc_build_pkt"), "QUIC");
    }

    #[test]
    fn perfs_script_becomes_shares_of_a_hundred() {
        let script = "\
nginx 
\tffffffff81000001 skb_copy+0x1 ([kernel.kallsyms])
\tffffffff81000002 udp_sendmsg+0x2 ([kernel.kallsyms])
\t    55550001 main+0x3 (/usr/sbin/nginx)

nginx 
\t    55550001 aes_gcm_enc+0x3 (/usr/lib/libcrypto.so)

";
        let shares = shares(script).unwrap();
        assert_eq!(shares, BTreeMap::from([("share/sending".to_owned(), 50.0), ("share/crypto".to_owned(), 50.0)]));
        assert_eq!(super::shares("\n\n"), None);
    }
}
