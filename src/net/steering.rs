//! Which worker's socket a datagram goes to: the rule, and the classic BPF program that has the kernel follow it.
//!
//! | packet (RFC 8999, RFC 9000 §17) | goes to |
//! |---|---|
//! | short header | the worker that the connection ID names |
//! | Handshake of QUIC version 1, with a connection ID of our length | the same |
//! | Initial, 0-RTT, Retry, another version | by the kernel's hash over addresses and ports |
//! | too short to tell, or a worker that does not exist | by the hash |
//!
//! A client's first packets name a connection ID of its own making: only the hash spreads them. It also keeps them
//! together, as a client does not change its address before the handshake is done (RFC 9000 §9).
//!
//! The kernel chooses once for datagrams that GRO has joined, which come from one address and port. They are of one
//! worker, as the hash had sent all their connections there, unless one of them has moved to this address: what then
//! reaches the wrong worker is dropped by it and sent again by the client.

use super::sys::Instruction;

/// The reuseport group's sockets are picked by index; any other number means "by the hash" (reuseport_select_sock in the
/// kernel's net/core/sock_reuseport.c).
const BY_HASH: u32 = u32::MAX;

/// RFC 8999 §5.1: the first bit of a long header's first octet is set.
const LONG_HEADER: u32 = 0x80;
/// RFC 9000 §17.2: the long packet type's bits.
const PACKET_TYPE: u32 = 0x30;
/// RFC 9000 §17.2.4.
const HANDSHAKE: u32 = 0x20;
/// The only version whose packet types are known here.
const VERSION_1: u32 = 1;
/// Of a long header: the version's offset.
const VERSION_OFFSET: u32 = 1;
/// Of a long header: the offset of the destination connection ID's length.
const ID_LEN_OFFSET: u32 = 5;
/// Of a long header: the destination connection ID's offset.
const LONG_ID_OFFSET: u32 = 6;
/// Of a short header: the destination connection ID's offset.
const SHORT_ID_OFFSET: u32 = 1;

/// Where the worker's index stands in a connection ID, and how many workers there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Steering {
    /// Octets of every connection ID that we issue, at most 20.
    pub id_len: u8,
    /// The octet of it that is the worker's index, counted from 0.
    pub worker_offset: u8,
    /// How many workers there are, at most 256.
    pub workers: u16,
}

impl Steering {
    /// The program. The kernel runs it on the UDP payload. A load beyond the packet would end it with 0, the first
    /// worker: the length is checked before.
    pub(super) fn program(&self) -> Vec<Instruction> {
        let in_short = SHORT_ID_OFFSET + u32::from(self.worker_offset);
        let in_long = LONG_ID_OFFSET + u32::from(self.worker_offset);
        // The last two numbers of a jump are the instructions that it skips when true, and when false. Line 15 checks
        // the worker, line 17 is the hash.
        vec![
            /*  0 */ load_len(),
            /*  1 */ jump(libc::BPF_JGT, in_short, 0, 15),
            /*  2 */ load_byte(0),
            /*  3 */ jump(libc::BPF_JSET, LONG_HEADER, 2, 0),
            /*  4 */ load_byte(in_short),
            /*  5 */ jump_always(9),
            /*  6 */ and(PACKET_TYPE),
            /*  7 */ jump(libc::BPF_JEQ, HANDSHAKE, 0, 9),
            /*  8 */ load_len(),
            /*  9 */ jump(libc::BPF_JGT, in_long, 0, 7),
            /* 10 */ load_word(VERSION_OFFSET),
            /* 11 */ jump(libc::BPF_JEQ, VERSION_1, 0, 5),
            /* 12 */ load_byte(ID_LEN_OFFSET),
            /* 13 */ jump(libc::BPF_JEQ, self.id_len.into(), 0, 3),
            /* 14 */ load_byte(in_long),
            /* 15 */ jump(libc::BPF_JGE, self.workers.into(), 1, 0),
            /* 16 */ return_loaded(),
            /* 17 */ return_value(BY_HASH),
        ]
    }
}

fn instruction(code: u32, operand: u32) -> Instruction {
    jump_instruction(code, operand, 0, 0)
}

#[expect(clippy::cast_possible_truncation, reason = "codes have 8 bits")]
fn jump_instruction(code: u32, operand: u32, jump_true: u8, jump_false: u8) -> Instruction {
    Instruction { code: code as u16, jump_true, jump_false, operand }
}

fn load_len() -> Instruction {
    instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_LEN, 0)
}

fn load_byte(offset: u32) -> Instruction {
    instruction(libc::BPF_LD | libc::BPF_B | libc::BPF_ABS, offset)
}

fn load_word(offset: u32) -> Instruction {
    instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset)
}

fn and(mask: u32) -> Instruction {
    instruction(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, mask)
}

fn jump(condition: u32, operand: u32, jump_true: u8, jump_false: u8) -> Instruction {
    jump_instruction(libc::BPF_JMP | condition | libc::BPF_K, operand, jump_true, jump_false)
}

fn jump_always(skip: u32) -> Instruction {
    instruction(libc::BPF_JMP | libc::BPF_JA, skip)
}

fn return_loaded() -> Instruction {
    instruction(libc::BPF_RET | libc::BPF_A, 0)
}

fn return_value(value: u32) -> Instruction {
    instruction(libc::BPF_RET | libc::BPF_K, value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const STEERING: Steering = Steering { id_len: 16, worker_offset: 2, workers: 4 };

    /// The rule in Rust: the worker for a UDP payload, or `BY_HASH`.
    fn rule(steering: &Steering, datagram: &[u8]) -> u32 {
        choose(steering, datagram).unwrap_or(BY_HASH)
    }

    fn choose(steering: &Steering, datagram: &[u8]) -> Option<u32> {
        let offset = if datagram.first()? & 0x80 == 0 {
            1
        } else {
            let handshake = datagram[0] & 0x30 == 0x20 && datagram.get(1..5)? == [0, 0, 0, 1];
            if !handshake || *datagram.get(5)? != steering.id_len {
                return None;
            }
            6
        };
        let worker = u32::from(*datagram.get(offset + usize::from(steering.worker_offset))?);
        (worker < u32::from(steering.workers)).then_some(worker)
    }

    /// The few instructions that the program uses, as the kernel runs them (net/core/filter.c).
    fn run(program: &[Instruction], datagram: &[u8]) -> u32 {
        let mut accumulator = 0;
        let mut at = 0;
        loop {
            let i = program[at];
            at += 1;
            let offset = i.operand as usize;
            let code = u32::from(i.code);
            let mut test = |true_branch: bool| at += usize::from(if true_branch { i.jump_true } else { i.jump_false });
            match code {
                0x80 => accumulator = u32::try_from(datagram.len()).unwrap(),
                0x30 => match datagram.get(offset) {
                    Some(byte) => accumulator = u32::from(*byte),
                    None => return 0,
                },
                0x20 => match datagram.get(offset..offset + 4) {
                    Some(word) => accumulator = u32::from_be_bytes(word.try_into().unwrap()),
                    None => return 0,
                },
                0x54 => accumulator &= i.operand,
                0x05 => at += offset,
                0x15 => test(accumulator == i.operand),
                0x25 => test(accumulator > i.operand),
                0x35 => test(accumulator >= i.operand),
                0x45 => test(accumulator & i.operand != 0),
                0x16 => return accumulator,
                0x06 => return i.operand,
                code => panic!("unknown instruction {code:#x}"),
            }
        }
    }

    fn short(worker: u8) -> Vec<u8> {
        [&[0x41, 0xef, 7, worker], &[0; 40][..]].concat()
    }

    fn long(first: u8, version: u32, id_len: u8, worker: u8) -> Vec<u8> {
        [&[first], &version.to_be_bytes()[..], &[id_len, 0xef, 7, worker], &[0; 40][..]].concat()
    }

    #[test]
    fn each_kind_of_packet_goes_where_the_table_says() {
        let table = [
            ("short header", short(3), 3),
            ("short header of the first worker", short(0), 0),
            ("a worker that does not exist", short(4), BY_HASH),
            ("no octet of the worker's", short(3)[..3].to_vec(), BY_HASH),
            ("just the worker's octet", short(3)[..4].to_vec(), 3),
            ("nothing", vec![], BY_HASH),
            ("Initial", long(0xc0, 1, 16, 3), BY_HASH),
            ("0-RTT", long(0xd0, 1, 16, 3), BY_HASH),
            ("Handshake", long(0xe0, 1, 16, 3), 3),
            ("Handshake, protected bits set", long(0xef, 1, 16, 3), 3),
            ("Handshake with another length", long(0xe0, 1, 8, 3), BY_HASH),
            ("Handshake of version 2", long(0xe0, 0x6b33_43cf, 16, 3), BY_HASH),
            ("Retry", long(0xf0, 1, 16, 3), BY_HASH),
            ("Handshake cut before the worker", long(0xe0, 1, 16, 3)[..8].to_vec(), BY_HASH),
        ];
        for (what, datagram, expected) in table {
            assert_eq!(run(&STEERING.program(), &datagram), expected, "{what}");
            assert_eq!(rule(&STEERING, &datagram), expected, "{what} (rule)");
        }
    }

    fn datagrams() -> impl Strategy<Value = Vec<u8>> {
        let anything = proptest::collection::vec(any::<u8>(), 0..64);
        let nearly_right = (any::<u8>(), 0_u32..3, 14_u8..19, any::<u8>(), 0_usize..49).prop_map(
            |(first, version, id_len, worker, len)| {
                let mut datagram = long(first, version, id_len, worker);
                datagram.truncate(len);
                datagram
            },
        );
        prop_oneof![anything, nearly_right]
    }

    proptest! {
        #[test]
        fn the_program_follows_the_rule(
            datagram in datagrams(),
            id_len in 16_u8..=20,
            workers in 1_u16..=256,
        ) {
            let steering = Steering { id_len, worker_offset: id_len - 14, workers };
            prop_assert_eq!(run(&steering.program(), &datagram), rule(&steering, &datagram));
        }
    }
}
