//! Which socket of a reuseport group a datagram goes to: the rule, and the classic BPF program for the kernel. Pure.
//!
//! The sockets of a group belong to processes, one socket a worker: to one process, and while a new one takes over
//! (docs/adr/0020) to the older ones too, which drain. A process is identified by its generation.
//!
//! | packet (RFC 8999) | goes to |
//! |---|---|
//! | short header | the worker that the connection ID names, of the process that it names |
//! | long header with a connection ID that looks like ours | the same |
//! | any other long header: a client's first packets | a worker of the newest process, by four bytes of the ID |
//! | short header with an unknown ID, or too short to decide | any worker of the newest process |
//!
//! A client's first packets have a connection ID of its own choice, of eight random bytes at least (RFC 9000 §7.2):
//! they spread the clients, and keep one's packets together whatever their address. The program decides every datagram:
//! what it left to the kernel's hash would go to sockets of all processes.
//!
//! The kernel chooses once for datagrams that GRO has joined, which come from one address and port. They are of one
//! worker, unless a client uses one port for several connections: what then reaches the wrong worker is dropped by it
//! and sent again by the client.

use super::sys::Instruction;

/// RFC 8999 §5.1: the first bit of a long header's first byte is set.
const LONG_HEADER: u32 = 0x80;
/// Offset of the destination connection ID's length in a long header (RFC 8999 §5.1).
const ID_LEN_OFFSET: u32 = 5;
/// Offset of the destination connection ID in a long header.
const LONG_ID_OFFSET: u32 = 6;
/// Offset of the destination connection ID in a short header (RFC 8999 §5.2).
const SHORT_ID_OFFSET: u32 = 1;
/// The four bytes by which long headers are spread: of the ID's second half, as some clients and balancers give the
/// first bytes a meaning.
const SPREAD_OFFSET: u32 = LONG_ID_OFFSET + 4;
/// The kernel's randomness, as a place in the packet (linux/filter.h: SKF_AD_OFF + SKF_AD_RANDOM).
const RANDOM: u32 = (-0x1000_i32 + 56).cast_unsigned();

/// Processes that may share a group. A conditional jump passes 255 instructions at most, and each takes five.
pub(super) const MAX_GENERATIONS: usize = 32;

/// The layout of the connection IDs that litequic issues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Steering {
    /// Bytes of every ID, at most 20.
    pub id_len: u8,
    /// First byte of every ID.
    pub first_byte: u8,
    /// The byte of it that is the process' generation, counted from 0.
    pub generation_offset: u8,
    /// The byte of it that is the worker's index; behind the generation.
    pub worker_offset: u8,
}

/// A process' sockets in a group: `workers` of them from the `first` on, in the order of their bind(2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Generation {
    /// What its connection IDs carry.
    pub number: u8,
    /// The first one's place in the group.
    pub first: usize,
    /// How many there are, between 1 and 256.
    pub workers: usize,
}

impl Steering {
    /// The program, for a group that belongs to `all`, of whom the `newest` gets what is new. The kernel runs it on the
    /// UDP payload. A load beyond the packet would end it with 0, the first socket: the length is checked before.
    pub(super) fn program(&self, all: &[Generation], newest: &Generation) -> Vec<Instruction> {
        let (generation, worker) = (u32::from(self.generation_offset), u32::from(self.worker_offset));
        let all = all.get(..MAX_GENERATIONS.min(all.len())).unwrap_or_default();
        // The offsets. A jump's number is of instructions to skip.
        const GENERATIONS: usize = 14;
        let unknown = GENERATIONS + 5 * all.len();
        let (random, spread, choose) = (unknown + 2, unknown + 4, unknown + 5);
        let mut program = vec![
            /*  0 */ load_len(),
            /*  1 */ jump(libc::BPF_JGT, SHORT_ID_OFFSET + worker, 0, to(1, random)),
            /*  2 */ load_byte(0),
            /*  3 */ jump(libc::BPF_JSET, LONG_HEADER, 2, 0),
            /*  4 */ load_index(SHORT_ID_OFFSET),
            /*  5 */ jump_always(to(5, GENERATIONS - 1)),
            /*  6 */ load_len(),
            /*  7 */ jump(libc::BPF_JGE, SPREAD_OFFSET + 4, 0, to(7, random)),
            /*  8 */ load_byte(ID_LEN_OFFSET),
            /*  9 */ jump(libc::BPF_JEQ, self.id_len.into(), 0, to(9, spread)),
            /* 10 */ load_byte(LONG_ID_OFFSET),
            /* 11 */ jump(libc::BPF_JEQ, self.first_byte.into(), 0, to(11, spread)),
            /* 12 */ load_index(LONG_ID_OFFSET),
            /* 13 */ load_byte_of_id(generation),
        ];
        for one in all {
            program.extend([
                jump(libc::BPF_JEQ, one.number.into(), 0, 4),
                load_byte_of_id(worker),
                jump(libc::BPF_JGE, number(one.workers), to(program.len() + 2, unknown), 0),
                add(number(one.first)),
                return_loaded(),
            ]);
        }
        program.extend([
            /* unknown */ index_to_accumulator(),
            jump(libc::BPF_JEQ, LONG_ID_OFFSET, to(unknown + 1, spread), 0),
            /* random */ load_word(RANDOM),
            jump_always(to(random + 1, choose)),
            /* spread */ load_word(SPREAD_OFFSET),
            /* choose */ modulo(number(newest.workers.max(1))),
            add(number(newest.first)),
            return_loaded(),
        ]);
        program
    }
}

/// Instructions between the one at `from` and the one at `target`, which stands behind it and no further than the
/// longest program.
#[expect(clippy::cast_possible_truncation, reason = "14 + 5 * MAX_GENERATIONS + 8 instructions are fewer than 256")]
const fn to(from: usize, target: usize) -> u8 {
    (target - from - 1) as u8
}

/// A number of sockets: at most some thousands.
fn number(of: usize) -> u32 {
    u32::try_from(of).unwrap_or(u32::MAX)
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

/// The byte at `offset` behind the index register, which holds the ID's place.
fn load_byte_of_id(offset: u32) -> Instruction {
    instruction(libc::BPF_LD | libc::BPF_B | libc::BPF_IND, offset)
}

fn load_word(offset: u32) -> Instruction {
    instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset)
}

fn load_index(value: u32) -> Instruction {
    instruction(libc::BPF_LDX | libc::BPF_W | libc::BPF_IMM, value)
}

fn index_to_accumulator() -> Instruction {
    instruction(libc::BPF_MISC | libc::BPF_TXA, 0)
}

fn add(value: u32) -> Instruction {
    instruction(libc::BPF_ALU | libc::BPF_ADD | libc::BPF_K, value)
}

fn modulo(value: u32) -> Instruction {
    instruction(libc::BPF_ALU | libc::BPF_MOD | libc::BPF_K, value)
}

fn jump(condition: u32, operand: u32, jump_true: u8, jump_false: u8) -> Instruction {
    jump_instruction(libc::BPF_JMP | condition | libc::BPF_K, operand, jump_true, jump_false)
}

fn jump_always(skip: u8) -> Instruction {
    instruction(libc::BPF_JMP | libc::BPF_JA, skip.into())
}

fn return_loaded() -> Instruction {
    instruction(libc::BPF_RET | libc::BPF_A, 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const STEERING: Steering = Steering { id_len: 16, first_byte: 0xef, generation_offset: 1, worker_offset: 2 };
    const OLD: Generation = Generation { number: 7, first: 0, workers: 4 };
    const NEW: Generation = Generation { number: 8, first: 4, workers: 3 };
    /// What the kernel's randomness is in these tests.
    const DICE: u32 = 1_000_003;

    /// The rule in Rust: the socket for a UDP payload.
    fn rule(steering: &Steering, all: &[Generation], newest: &Generation, datagram: &[u8]) -> usize {
        let choose = |by: u32| newest.first + by as usize % newest.workers;
        let named = |id: &[u8]| {
            let (generation, worker) = (id[steering.generation_offset as usize], id[steering.worker_offset as usize]);
            let owner = all.iter().find(|one| one.number == generation)?;
            (usize::from(worker) < owner.workers).then_some(owner.first + usize::from(worker))
        };
        match datagram {
            short if short.len() <= 1 + usize::from(steering.worker_offset) => choose(DICE),
            short if short[0] & 0x80 == 0 => named(&short[1..]).unwrap_or(choose(DICE)),
            long if long.len() < 14 => choose(DICE),
            long => {
                let ours = long[5] == steering.id_len && long[6] == steering.first_byte;
                let spread = choose(u32::from_be_bytes(*long[10..].first_chunk().unwrap()));
                if ours { named(&long[6..]).unwrap_or(spread) } else { spread }
            }
        }
    }

    /// The few instructions that the program uses, as the kernel runs them (net/core/filter.c).
    fn run(program: &[Instruction], datagram: &[u8]) -> usize {
        let (mut accumulator, mut index) = (0_u32, 0_u32);
        let mut at = 0;
        loop {
            let i = program[at];
            at += 1;
            let offset = i.operand as usize;
            let mut test = |true_branch: bool| at += usize::from(if true_branch { i.jump_true } else { i.jump_false });
            match u32::from(i.code) {
                0x80 => accumulator = u32::try_from(datagram.len()).unwrap(),
                0x30 => match datagram.get(offset) {
                    Some(byte) => accumulator = u32::from(*byte),
                    None => return 0,
                },
                0x50 => match datagram.get(offset + index as usize) {
                    Some(byte) => accumulator = u32::from(*byte),
                    None => return 0,
                },
                0x20 if i.operand == 0xffff_f038 => accumulator = DICE,
                0x20 => match datagram.get(offset..offset + 4) {
                    Some(word) => accumulator = u32::from_be_bytes(word.try_into().unwrap()),
                    None => return 0,
                },
                0x01 => index = i.operand,
                0x87 => accumulator = index,
                0x04 => accumulator += i.operand,
                0x94 => accumulator %= i.operand,
                0x05 => at += offset,
                0x15 => test(accumulator == i.operand),
                0x25 => test(accumulator > i.operand),
                0x35 => test(accumulator >= i.operand),
                0x45 => test(accumulator & i.operand != 0),
                0x16 => return accumulator as usize,
                code => panic!("unknown instruction {code:#x}"),
            }
        }
    }

    fn short(generation: u8, worker: u8) -> Vec<u8> {
        [&[0x41, 0xef, generation, worker], &[0; 40][..]].concat()
    }

    /// With 5 as the bytes by which it is spread.
    fn long(id_len: u8, first_byte: u8, generation: u8, worker: u8) -> Vec<u8> {
        [&[0xc0, 0, 0, 0, 1, id_len, first_byte, generation, worker, 1, 0, 0, 0, 5], &[0; 30][..]].concat()
    }

    #[test]
    fn each_kind_of_packet_goes_where_the_table_says() {
        let (dice, spread) = (4 + DICE as usize % 3, 4 + 5 % 3);
        let table = [
            ("short header of the old process", short(7, 3), 3),
            ("of its first worker", short(7, 0), 0),
            ("of the new process", short(8, 2), 6),
            ("of a worker that does not exist", short(8, 3), dice),
            ("of a process that is gone", short(6, 0), dice),
            ("no byte of the worker's", short(7, 3)[..3].to_vec(), dice),
            ("just the worker's byte", short(7, 3)[..4].to_vec(), 3),
            ("nothing", vec![], dice),
            ("long header, our ID, of the old process", long(16, 0xef, 7, 3), 3),
            ("of the new process", long(16, 0xef, 8, 1), 5),
            ("of a worker that does not exist", long(16, 0xef, 7, 4), spread),
            ("of a process that is gone", long(16, 0xef, 6, 0), spread),
            ("another first byte", long(16, 0xee, 7, 3), spread),
            ("another length", long(8, 0xef, 7, 3), spread),
            ("cut where it just is spread", long(8, 0xef, 7, 3)[..14].to_vec(), spread),
            ("cut before", long(8, 0xef, 7, 3)[..13].to_vec(), dice),
        ];
        for (what, datagram, expected) in table {
            assert_eq!(run(&STEERING.program(&[OLD, NEW], &NEW), &datagram), expected, "{what}");
            assert_eq!(rule(&STEERING, &[OLD, NEW], &NEW, &datagram), expected, "{what} (rule)");
        }
    }

    fn datagrams() -> impl Strategy<Value = Vec<u8>> {
        let anything = proptest::collection::vec(any::<u8>(), 0..64);
        let nearly_right = (any::<u8>(), 14_u8..19, 0xee_u8..=0xef, 0_u8..40, any::<u8>(), any::<u32>(), 0_usize..49)
            .prop_map(|(first, id_len, byte, generation, worker, spread, len)| {
                let mut datagram = long(id_len, byte, generation, worker);
                datagram[0] = first;
                datagram[10..14].copy_from_slice(&spread.to_be_bytes());
                if first & 0x80 == 0 {
                    datagram[1..4].copy_from_slice(&[byte, generation, worker]);
                }
                datagram.truncate(len);
                datagram
            });
        prop_oneof![anything, nearly_right]
    }

    proptest! {
        #[test]
        fn the_program_follows_the_rule(
            datagram in datagrams(),
            id_len in 16_u8..=20,
            workers in proptest::collection::vec(1_usize..=256, 1..=MAX_GENERATIONS),
        ) {
            let steering = Steering { id_len, generation_offset: id_len - 15, worker_offset: id_len - 14, ..STEERING };
            let mut first = 0;
            let all: Vec<_> = workers.iter().zip(0_u8..).map(|(&workers, number)| {
                first += workers;
                Generation { number, first: first - workers, workers }
            }).collect();
            let newest = all.last().unwrap();
            prop_assert_eq!(run(&steering.program(&all, newest), &datagram), rule(&steering, &all, newest, &datagram));
        }
    }
}
