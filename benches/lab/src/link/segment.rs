//! Super-packets: split into packets of MTU size before the link, as a network card's TSO and USO do, and neighbours of
//! a flow joined after it, as GRO does. Frames are packets with their `virtio_net_hdr`. Pure.
//!
//! Transport checksums stay partial: the field has the pseudo-header's sum, and the receiving kernel takes the rest for
//! verified (`VIRTIO_NET_HDR_F_NEEDS_CSUM`). Only what a split or a join changes of that sum is written.

use super::{
    packet::{TCP, UDP, header, ipv4_checksum, put_u16, put_u32, sum, u16_at, u32_at},
    tun::HEADER,
};

const NEEDS_CSUM: u8 = 1;
const GSO_NONE: u8 = 0;
const GSO_TCPV4: u8 = 1;
const GSO_TCPV6: u8 = 4;
const GSO_UDP_L4: u8 = 5;
/// Beside the type: a TCP super-packet with CWR (RFC 3168), which its first segment alone keeps.
const GSO_ECN: u8 = 0x80;

const FIN: u8 = 0x01;
const PSH: u8 = 0x08;
const ACK: u8 = 0x10;
const CWR: u8 = 0x80;
/// The largest IP packet.
const LARGEST: usize = 65_535;

/// `struct virtio_net_hdr`, of which the numbers have the host's byte order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Offload {
    flags: u8,
    gso_type: u8,
    header_length: u16,
    gso_size: u16,
    csum_start: u16,
    csum_offset: u16,
}

impl Offload {
    fn read(frame: &[u8]) -> Option<Self> {
        let number = |at: usize| Some(u16::from_ne_bytes(*frame.get(at..)?.first_chunk()?));
        Some(Self {
            flags: *frame.first()?,
            gso_type: *frame.get(1)?,
            header_length: number(2)?,
            gso_size: number(4)?,
            csum_start: number(6)?,
            csum_offset: number(8)?,
        })
    }

    fn write(self, frame: &mut [u8]) {
        let numbers = [self.header_length, self.gso_size, self.csum_start, self.csum_offset].map(u16::to_ne_bytes);
        let bytes = [self.flags, self.gso_type].into_iter().chain(numbers.into_iter().flatten());
        for (to, from) in frame.iter_mut().zip(bytes) {
            *to = from;
        }
    }
}

/// Where the transport's header begins in a packet, and where its payload does.
fn layout(packet: &[u8]) -> Option<(u8, usize, usize)> {
    let (protocol, ip) = header(packet)?;
    let transport = match protocol {
        UDP => 8,
        TCP => usize::from(packet.get(ip + 12)? >> 4) * 4,
        _ => return None,
    };
    (ip + transport <= packet.len()).then_some((protocol, ip, ip + transport))
}

/// Writes the lengths of a packet, and what depends on them: the IPv4 checksum and the pseudo-header's sum.
fn seal(packet: &mut [u8], protocol: u8, ip: usize) {
    let (Ok(all), Ok(transport)) = (u16::try_from(packet.len()), u16::try_from(packet.len() - ip)) else { return };
    let is_v4 = packet.first().is_some_and(|first| first >> 4 == 4);
    let addresses = if is_v4 { 12..20 } else { 8..40 };
    if is_v4 {
        put_u16(packet, 2, all);
        ipv4_checksum(packet);
    } else {
        put_u16(packet, 4, transport);
    }
    if protocol == UDP {
        put_u16(packet, ip + 4, transport);
    }
    let pseudo = sum(packet.get(addresses).unwrap_or_default(), u64::from(protocol) + u64::from(transport));
    put_u16(packet, ip + if protocol == UDP { 6 } else { 16 }, pseudo);
}

/// Hands over the packets that a frame holds: itself, unless it is a super-packet.
pub(super) fn split(frame: Vec<u8>, mut take: impl FnMut(Vec<u8>)) {
    let Some(offload) = Offload::read(&frame).filter(|offload| offload.gso_type != GSO_NONE && offload.gso_size > 0)
    else {
        return take(frame);
    };
    let packet = frame.get(HEADER..).unwrap_or_default();
    let Some((protocol, ip, begin)) = layout(packet) else { return take(frame) };
    let (head, payload) = packet.split_at(begin);
    let size = usize::from(offload.gso_size);
    let count = payload.len().div_ceil(size);
    let plain = Offload { gso_type: GSO_NONE, gso_size: 0, header_length: 0, ..offload };
    for (number, piece) in payload.chunks(size).enumerate() {
        let mut segment = vec![0; HEADER];
        plain.write(&mut segment);
        segment.extend_from_slice(head);
        segment.extend_from_slice(piece);
        let packet = segment.get_mut(HEADER..).unwrap_or_default();
        let (Ok(index), Ok(offset)) = (u16::try_from(number), u32::try_from(number * size)) else { return };
        if packet.first().is_some_and(|first| first >> 4 == 4) {
            let id = u16_at(packet, 4).unwrap_or_default();
            put_u16(packet, 4, id.wrapping_add(index));
        }
        if protocol == TCP {
            let sequence = u32_at(packet, ip + 4).unwrap_or_default();
            put_u32(packet, ip + 4, sequence.wrapping_add(offset));
            if let Some(flags) = packet.get_mut(ip + 13) {
                *flags &= !if number + 1 < count { FIN | PSH } else { 0 };
                *flags &= !if number > 0 { CWR } else { 0 };
            }
        }
        seal(packet, protocol, ip);
        take(segment);
    }
}

/// Appends `next` to `frame` if a network card's driver could: the same flow and headers, the next bytes of TCP, pieces
/// of one size of which the last may be shorter. `false`: it is another packet.
pub(super) fn join(frame: &mut Vec<u8>, next: &[u8]) -> bool {
    let Some(joined) = joint(frame, next) else { return false };
    let Joint { offload, protocol, ip, begin, flags } = joined;
    frame.extend_from_slice(next.get(HEADER + begin..).unwrap_or_default());
    offload.write(frame);
    let packet = frame.get_mut(HEADER..).unwrap_or_default();
    if let (TCP, Some(field)) = (protocol, packet.get_mut(ip + 13)) {
        *field |= flags;
    }
    seal(packet, protocol, ip);
    true
}

struct Joint {
    offload: Offload,
    protocol: u8,
    ip: usize,
    begin: usize,
    flags: u8,
}

fn joint(frame: &[u8], next: &[u8]) -> Option<Joint> {
    let (first, second) = (Offload::read(frame)?, Offload::read(next)?);
    let (one, other) = (frame.get(HEADER..)?, next.get(HEADER..)?);
    let (protocol, ip, begin) = layout(one)?;
    let (payload, more) = (one.len() - begin, other.len().checked_sub(begin)?);
    let is_v4 = one.first()? >> 4 == 4;
    let size = if first.gso_type == GSO_NONE { payload } else { usize::from(first.gso_size) };
    let fits = layout(other)? == (protocol, ip, begin)
        && first.flags & second.flags & NEEDS_CSUM != 0
        && second.gso_type == GSO_NONE
        && size > 0
        && (1..=size).contains(&more)
        && payload.is_multiple_of(size)
        && one.len() + more <= LARGEST;
    // Version, class and addresses; of IPv4 neither length, ID nor checksum.
    let same = |range: std::ops::Range<usize>| one.get(range.clone()) == other.get(range);
    let addressed = if is_v4 { same(0..2) && same(6..10) && same(12..ip) } else { same(0..4) && same(6..ip) };
    if !fits || !addressed || !same(ip..ip + 4) {
        return None;
    }
    let mut flags = 0;
    if protocol == TCP {
        // Sequence number at 4, acknowledgement at 8, flags at 13, window at 14, checksum at 16, options from 20 on.
        let follows = u32_at(one, ip + 4)?.wrapping_add(u32::try_from(payload).ok()?) == u32_at(other, ip + 4)?;
        flags = *other.get(ip + 13)?;
        let plain = *one.get(ip + 13)? == ACK && flags & !PSH == ACK;
        if !follows || !plain || !same(ip + 8..ip + 13) || !same(ip + 14..ip + 16) || !same(ip + 18..begin) {
            return None;
        }
    }
    let gso_type = match (protocol, is_v4) {
        (UDP, _) => GSO_UDP_L4,
        (_, true) => GSO_TCPV4,
        (_, false) => GSO_TCPV6,
    };
    let offload =
        Offload { gso_type, gso_size: u16::try_from(size).ok()?, header_length: u16::try_from(begin).ok()?, ..first };
    debug_assert_eq!(first.gso_type & GSO_ECN, 0);
    Some(Joint { offload, protocol, ip, begin, flags })
}

#[cfg(test)]
mod tests {
    use super::{super::packet::tests::ipv4, *};
    use proptest::prelude::*;

    const NEEDS: Offload = Offload {
        flags: NEEDS_CSUM,
        gso_type: GSO_NONE,
        header_length: 0,
        gso_size: 0,
        csum_start: 20,
        csum_offset: 6,
    };

    fn frame(offload: Offload, packet: &[u8]) -> Vec<u8> {
        let mut frame = vec![0; HEADER];
        offload.write(&mut frame);
        frame.extend_from_slice(packet);
        frame
    }

    fn udp(payload: &[u8]) -> Vec<u8> {
        let mut transport = vec![1, 187, 0x13, 0x88, 0, 0, 0, 0];
        transport.extend_from_slice(payload);
        let mut packet = ipv4(UDP, 2, &transport);
        seal(&mut packet, UDP, 20);
        packet
    }

    fn tcp(sequence: u32, flags: u8, payload: &[u8]) -> Vec<u8> {
        let mut transport = vec![1, 187, 0x13, 0x88];
        transport.extend(sequence.to_be_bytes());
        // Acknowledgement, 32 bytes of header, flags, window, checksum, urgent pointer, a timestamp option.
        transport.extend([0, 0, 0, 7, 0x80, flags, 1, 0, 0, 0, 0, 0, 1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2]);
        transport.extend_from_slice(payload);
        let mut packet = ipv4(TCP, 2, &transport);
        seal(&mut packet, TCP, 20);
        packet
    }

    fn bytes(length: usize) -> Vec<u8> {
        (0..length).map(|at| u8::try_from(at % 251).unwrap()).collect()
    }

    fn pieces(frame: Vec<u8>) -> Vec<Vec<u8>> {
        let mut pieces = Vec::new();
        split(frame, |piece| pieces.push(piece));
        pieces
    }

    proptest! {
        #[test]
        fn a_super_packet_is_split_byte_exact_and_joined_again(
            length in 1_usize..60_000, size in 500_u16..1460, sequence: u32, is_tcp: bool
        ) {
            let payload = bytes(length);
            let (packet, gso_type, csum_offset) = if is_tcp {
                (tcp(sequence, ACK | PSH, &payload), GSO_TCPV4, 16)
            } else {
                (udp(&payload), GSO_UDP_L4, 6)
            };
            let begin = packet.len() - length;
            let header_length = u16::try_from(begin).unwrap();
            let offload = Offload { gso_type, header_length, gso_size: size, csum_offset, ..NEEDS };
            let whole = frame(offload, &packet);
            let pieces = pieces(whole.clone());
            prop_assert_eq!(pieces.len(), length.div_ceil(usize::from(size)));
            let joined: Vec<u8> = pieces.iter().flat_map(|piece| piece[HEADER + begin..].to_vec()).collect();
            prop_assert_eq!(&joined, &payload);
            for (number, piece) in pieces.iter().enumerate() {
                let packet = &piece[HEADER..];
                prop_assert_eq!(usize::from(u16_at(packet, 2).unwrap()), packet.len());
                prop_assert_eq!(sum(&packet[..20], 0), 0xffff);
                prop_assert_eq!(u16_at(packet, 4).unwrap(), 9 + u16::try_from(number).unwrap());
                prop_assert_eq!(packet[1], 2, "ECN is kept");
            }
            let mut again = pieces[0].clone();
            for piece in &pieces[1..] {
                prop_assert!(join(&mut again, piece));
            }
            if pieces.len() > 1 {
                prop_assert_eq!(again, whole);
            }
        }
    }

    #[test]
    fn what_is_no_super_packet_stays_as_it_is() {
        for whole in [frame(NEEDS, &udp(&bytes(100))), frame(NEEDS, &ipv4(1, 0, &[8; 60])), vec![1, 2], vec![]] {
            assert_eq!(pieces(whole.clone()), [whole]);
        }
    }

    #[test]
    fn fin_is_on_the_last_segment_and_cwr_on_the_first() {
        let packet = tcp(1, ACK | PSH | FIN | CWR, &bytes(2_500));
        let offload = Offload { gso_type: GSO_TCPV4 | GSO_ECN, gso_size: 1_000, csum_offset: 16, ..NEEDS };
        let flags: Vec<u8> = pieces(frame(offload, &packet)).iter().map(|piece| piece[HEADER + 33]).collect();
        assert_eq!(flags, [ACK | CWR, ACK, ACK | PSH | FIN]);
    }

    #[test]
    fn strangers_are_not_joined() {
        let first = frame(NEEDS, &udp(&bytes(1_000)));
        let mut other_port = first.clone();
        other_port[HEADER + 23] = 9;
        let mut other_class = first.clone();
        other_class[HEADER + 1] = 3;
        let longer = frame(NEEDS, &udp(&bytes(1_001)));
        let complete = frame(Offload { flags: 0, ..NEEDS }, &udp(&bytes(1_000)));
        for next in [other_port, other_class, longer, complete, vec![]] {
            assert!(!join(&mut first.clone(), &next));
        }
        let mut ended = first.clone();
        assert!(join(&mut ended, &frame(NEEDS, &udp(&bytes(10)))));
        assert!(!join(&mut ended, &first), "nothing follows a shorter one");
        let segment = |sequence, flags| frame(Offload { csum_offset: 16, ..NEEDS }, &tcp(sequence, flags, &bytes(100)));
        for next in [segment(1, ACK), segment(201, ACK), segment(101, ACK | FIN)] {
            assert!(!join(&mut segment(1, ACK), &next));
        }
        assert!(join(&mut segment(1, ACK), &segment(101, ACK | PSH)));
    }
}
