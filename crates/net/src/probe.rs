//! Tests with datagrams over loopback which features this kernel supports, for `litequic probe`.

use super::{
    feature,
    socket_group::{RECEIVE_BUFFER_BYTES, SEND_BUFFER_BYTES, request_buffers, try_steering},
    sys::{GRO_MESSAGE_LEN, KernelMessage, PLAIN_MESSAGE_LEN, ReceiveBatch, SendBatch},
    uring,
};
use crate::datagram::{NetworkPath, OutgoingBatch};
use litequic_base::named_enum;
use s2n_quic_core::{
    inet::{ExplicitCongestionNotification as Ecn, SocketAddress},
    path::Tuple,
};
use socket2::Socket;
use std::{
    convert::Infallible,
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    time::Duration,
};

/// Longest time that a probe waits for a datagram over loopback.
const LOOPBACK_TIMEOUT: Duration = Duration::from_secs(1);
/// Bytes of a probe's datagrams.
const PROBE_SEGMENT_LEN: usize = 1200;
/// Datagrams of a probe's message.
const PROBE_SEGMENTS: usize = 3;

/// Result of testing one feature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeResult {
    /// Tested feature.
    pub feature: Feature,
    /// IP version with which the feature was tested; `None` if the version makes no difference.
    pub family: Option<AddressFamily>,
    /// Text for the operator: the extent to which the feature works, or the reason for which it does not.
    pub outcome: Result<String, String>,
}

named_enum! {
    /// Features that litequic uses if the kernel supports them.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Feature {
        /// recvmmsg(2) and sendmmsg(2).
        Batches = "recvmmsg, sendmmsg",
        /// io_uring(7) with a multishot receive.
        IoUring = "io_uring",
        /// UDP_SEGMENT.
        Gso = "GSO (UDP_SEGMENT)",
        /// UDP_GRO.
        Gro = "GRO (UDP_GRO)",
        /// The ECN codepoint, sent and received.
        Ecn = "ECN",
        /// The local address of a received datagram.
        LocalAddress = "local address (PKTINFO)",
        /// Packets of any size, without fragmentation.
        MtuProbing = "path MTU probing",
        /// Steering of packets to workers by connection ID.
        Steering = "steering by connection ID",
        /// SO_RCVBUF.
        ReceiveBuffer = "receive buffer",
        /// SO_SNDBUF.
        SendBuffer = "send buffer",
    }
    /// Name of the feature, for people.
    fn feature_name;
}

/// An IP version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum AddressFamily {
    V4,
    V6,
}

/// Tests every feature. Takes some milliseconds; a second for each kind of datagram that does not arrive.
pub fn probe_kernel() -> Vec<ProbeResult> {
    let mut findings = Vec::new();
    for family in [AddressFamily::V4, AddressFamily::V6] {
        let of = |feature, outcome| ProbeResult { feature, family: Some(family), outcome };
        match Loopback::new(family) {
            Ok(mut loopback) => {
                findings.extend(loopback.probe_features().map(|(feature, outcome)| of(feature, outcome)));
            }
            Err(error) => findings.push(of(Feature::Batches, Err(format!("no loopback: {error}")))),
        }
    }
    let of = |feature, outcome| ProbeResult { feature, family: None, outcome };
    findings.push(of(
        Feature::IoUring,
        uring::check_io_uring().map(|()| "yes".into()).map_err(|refusal| refusal.to_string()),
    ));
    findings.push(of(
        Feature::Steering,
        try_steering(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), false).map_err(|error| error.to_string()).map(|()| {
            match try_steering(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), true) {
                Ok(()) => "yes".into(),
                Err(error) => format!("yes, but not with listen.server_id: {error}; raise net.core.optmem_max"),
            }
        }),
    ));
    match UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|socket| request_buffers(&Socket::from(socket))) {
        Ok((receive, send)) => {
            findings
                .push(of(Feature::ReceiveBuffer, buffer_outcome(receive, RECEIVE_BUFFER_BYTES, "net.core.rmem_max")));
            findings.push(of(Feature::SendBuffer, buffer_outcome(send, SEND_BUFFER_BYTES, "net.core.wmem_max")));
        }
        Err(error) => findings.push(of(Feature::ReceiveBuffer, Err(error.to_string()))),
    }
    findings
}

fn buffer_outcome(got: usize, wanted: usize, key: &str) -> Result<String, String> {
    let kib = |bytes| bytes / 1024;
    if got < wanted {
        return Err(format!("{} KiB of {}: raise {key}, or litequic loses datagrams in bursts", kib(got), kib(wanted)));
    }
    Ok(format!("{} KiB", kib(got)))
}

/// Two sockets that can reach each other.
struct Loopback {
    sender: UdpSocket,
    receiver: UdpSocket,
    local: SocketAddr,
    path: NetworkPath,
}

impl Loopback {
    fn new(family: AddressFamily) -> io::Result<Self> {
        let ip: IpAddr = match family {
            AddressFamily::V4 => Ipv4Addr::LOCALHOST.into(),
            AddressFamily::V6 => Ipv6Addr::LOCALHOST.into(),
        };
        let sender = UdpSocket::bind((ip, 0))?;
        let receiver = UdpSocket::bind((ip, 0))?;
        receiver.set_read_timeout(Some(LOOPBACK_TIMEOUT))?;
        let local = receiver.local_addr()?;
        let path = Tuple {
            remote_address: SocketAddress::from(local).into(),
            local_address: SocketAddress::from(sender.local_addr()?).into(),
        }
        .into();
        Ok(Self { sender, receiver, local, path })
    }

    fn probe_features(&mut self) -> impl Iterator<Item = (Feature, Result<String, String>)> {
        let missing = |error: io::Error| error.to_string();
        let (local, receiver) = (self.local, &self.receiver);
        let ecn = feature::enable_ecn(receiver, local).map_err(missing);
        let local_address = feature::enable_local_address(receiver, local).map_err(missing);
        let mtu_probing = feature::enable_mtu_probing(receiver, local).map(|()| "yes".into()).map_err(missing);
        let yes = |held: bool, otherwise: &str| if held { Ok("yes".into()) } else { Err(otherwise.to_owned()) };

        let single = self.exchange_datagrams(1, PLAIN_MESSAGE_LEN);
        let arrived = single.as_ref().ok().and_then(|all| all.first().copied());
        let batches = single.map(|_| "yes".into()).map_err(missing);
        let ecn = ecn.and_then(|()| {
            yes(arrived.is_some_and(|a| a.ecn == Ecn::Ect0 as u8), "the kernel does not report the codepoint")
        });
        let local_address = local_address.and_then(|()| {
            yes(arrived.is_some_and(|a| a.local == Some(local.ip())), "the kernel does not report the address")
        });

        let gso = feature::enable_gso(&self.sender).map_err(missing);
        let gso = gso.and_then(|()| {
            let cut = self.exchange_datagrams(PROBE_SEGMENTS, PLAIN_MESSAGE_LEN).map_err(missing)?;
            let sizes: Vec<usize> = cut.iter().map(|arrived| arrived.len).collect();
            yes(sizes == [PROBE_SEGMENT_LEN; PROBE_SEGMENTS], "segments do not arrive as datagrams")
        });
        let gro = feature::enable_gro(&self.receiver).map_err(missing);
        let gro = match &gso {
            Err(_) => gro.map(|()| "yes; untested without GSO".into()),
            Ok(_) => gro.and_then(|()| {
                let joined = self.exchange_datagrams(PROBE_SEGMENTS, GRO_MESSAGE_LEN).map_err(missing)?;
                let whole = joined
                    .first()
                    .is_some_and(|a| (a.len, a.segment) == (PROBE_SEGMENTS * PROBE_SEGMENT_LEN, PROBE_SEGMENT_LEN));
                yes(whole, "datagrams are not joined")
            }),
        };
        [
            (Feature::Batches, batches),
            (Feature::Gso, gso),
            (Feature::Gro, gro),
            (Feature::Ecn, ecn),
            (Feature::LocalAddress, local_address),
            (Feature::MtuProbing, mtu_probing),
        ]
        .into_iter()
    }

    /// Sends a message of `count` datagrams with ECT(0), and returns the messages that arrive until all bytes have
    /// arrived.
    fn exchange_datagrams(&self, count: usize, message_len: usize) -> io::Result<Vec<KernelMessage>> {
        let mut outgoing = OutgoingBatch::new(PROBE_SEGMENT_LEN);
        for n in 0..count {
            let write = |_: &mut [u8]| Ok::<_, Infallible>(PROBE_SEGMENT_LEN);
            let Ok(_) = if n == 0 {
                outgoing.begin_message(self.path, Ecn::Ect0, true, write)
            } else {
                outgoing.join_message(write)
            };
        }
        let mut sends = SendBatch::new(self.sender.local_addr()?);
        sends.call_sendmmsg(&self.sender, outgoing.messages(), |message| outgoing.payload(message))?;
        let mut batch = ReceiveBatch::new(count, message_len);
        let (mut all, mut bytes) = (Vec::new(), 0);
        while bytes < count * PROBE_SEGMENT_LEN {
            // The batch does not wait, but this does.
            self.receiver.peek(&mut [0])?;
            let received = batch.call_recvmmsg(&self.receiver)?;
            let arrived: Vec<KernelMessage> = (0..received).filter_map(|index| batch.kernel_message(index)).collect();
            bytes += arrived.iter().map(|arrived| arrived.len).sum::<usize>();
            all.extend(arrived);
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_supports_the_features_that_tests_need() {
        let findings = probe_kernel();
        for feature in [Feature::Batches, Feature::Gso, Feature::Gro, Feature::Ecn, Feature::LocalAddress] {
            let found = findings.iter().find(|f| f.feature == feature && f.family == Some(AddressFamily::V4)).unwrap();
            assert_eq!(found.outcome, Ok("yes".into()), "{feature:?}");
        }
    }

    #[test]
    fn features_that_were_not_enabled_are_not_reported() {
        let loopback = Loopback::new(AddressFamily::V4).unwrap();
        let arrived = loopback.exchange_datagrams(1, PLAIN_MESSAGE_LEN).unwrap();
        assert_eq!((arrived[0].ecn, arrived[0].local, arrived[0].segment), (0, None, PROBE_SEGMENT_LEN));
        // Without UDP_GRO the kernel splits a message.
        assert_eq!(loopback.exchange_datagrams(PROBE_SEGMENTS, GRO_MESSAGE_LEN).unwrap().len(), PROBE_SEGMENTS);
    }

    #[test]
    fn a_buffer_that_the_kernel_caps_names_the_key_to_raise() {
        assert_eq!(buffer_outcome(2 << 20, 2 << 20, "net.core.rmem_max"), Ok("2048 KiB".into()));
        let error = buffer_outcome(212_992, 2 << 20, "net.core.rmem_max").unwrap_err();
        assert_eq!(error, "208 KiB of 2048: raise net.core.rmem_max, or litequic loses datagrams in bursts");
    }
}
