//! Passes messages with file descriptors between two processes of one machine (unix(7), SCM_RIGHTS). A message is two
//! lengths, its bytes, and its descriptors, which are sent with a byte for each group that the kernel accepts at once.

use rustix::{
    cmsg_space,
    net::{
        RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
        recvmsg, sendmsg,
    },
};
use std::{
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{BorrowedFd, OwnedFd},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, Interest},
    net::UnixStream,
};

/// Descriptors of one sendmsg(2) call; the kernel allows 253 (SCM_MAX_FD).
const MAX_DESCRIPTORS_AT_ONCE: usize = 128;
/// Largest message in bytes: 16 addresses with a few dozen numbers each are some KiB.
const MAX_PAYLOAD_LEN: u32 = 1024 * 1024;
/// Largest number of descriptors in a message: a UDP socket and a TCP listener for each of 256 workers at 16 addresses.
const MAX_DESCRIPTORS: u32 = 16 * 2 * 256;

/// Sends `message` and duplicates of `descriptors`.
///
/// # Errors
///
/// The error of sendmsg(2); [`io::ErrorKind::InvalidInput`] if the message or the number of descriptors is too large.
///
/// # Cancel safety
///
/// Dropping the future may leave an incomplete message: the stream cannot be used any more.
pub async fn send_descriptors(
    stream: &mut UnixStream,
    message: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let bounded = |len: usize, max: u32| {
        u32::try_from(len).ok().filter(|len| *len <= max).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))
    };
    stream.write_u32(bounded(message.len(), MAX_PAYLOAD_LEN)?).await?;
    stream.write_u32(bounded(descriptors.len(), MAX_DESCRIPTORS)?).await?;
    stream.write_all(message).await?;
    for some in descriptors.chunks(MAX_DESCRIPTORS_AT_ONCE) {
        let sent = stream.async_io(Interest::WRITABLE, || {
            let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(MAX_DESCRIPTORS_AT_ONCE))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            if !control.push(SendAncillaryMessage::ScmRights(some)) {
                return Err(io::ErrorKind::InvalidInput.into());
            }
            Ok(sendmsg(&*stream, &[IoSlice::new(&[0])], &mut control, SendFlags::NOSIGNAL)?)
        });
        sent.await?;
    }
    Ok(())
}

/// Receives a message and its descriptors, which exec(2) closes.
///
/// # Errors
///
/// The error of recvmsg(2); [`io::ErrorKind::InvalidData`] for bytes that [`send_descriptors`] did not send, or for
/// descriptors beyond the limit of this process (RLIMIT_NOFILE).
///
/// # Cancel safety
///
/// Dropping the future loses the received bytes and closes the received descriptors.
pub async fn receive_descriptors(stream: &mut UnixStream) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
    let (len, count) = (stream.read_u32().await?, stream.read_u32().await?);
    if len > MAX_PAYLOAD_LEN || count > MAX_DESCRIPTORS {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let (Ok(len), Ok(count)) = (usize::try_from(len), usize::try_from(count)) else {
        return Err(io::ErrorKind::InvalidData.into());
    };
    let mut message = vec![0; len];
    stream.read_exact(&mut message).await?;
    let mut descriptors = Vec::new();
    while descriptors.len() < count {
        let expected = MAX_DESCRIPTORS_AT_ONCE.min(count - descriptors.len());
        let received = stream.async_io(Interest::READABLE, || {
            let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(MAX_DESCRIPTORS_AT_ONCE))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let mut byte = [0];
            recvmsg(&*stream, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
            let mut some = Vec::new();
            for message in control.drain() {
                if let RecvAncillaryMessage::ScmRights(rights) = message {
                    some.extend(rights);
                }
            }
            Ok(some)
        });
        let some = received.await?;
        // Fewer arrive if the process reached its limit of descriptors, or if the stream ended.
        if some.len() != expected {
            let why =
                format!("received {} of {expected} file descriptors: is the limit of open files too low?", some.len());
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        descriptors.extend(some);
    }
    Ok((message, descriptors))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        io::{Read, Write},
        os::fd::{AsFd, AsRawFd},
    };
    use tokio::time::timeout;

    /// Read ends of `count` pipes, each of which holds its own number.
    fn pipes(count: u32) -> Vec<OwnedFd> {
        let pipe = |number: u32| {
            let (reader, mut writer) = io::pipe().unwrap();
            writer.write_all(&number.to_be_bytes()).unwrap();
            reader.into()
        };
        (0..count).map(pipe).collect()
    }

    #[tokio::test]
    async fn a_message_arrives_with_its_descriptors_in_their_order() {
        for count in [0, 1, 127, 128, 129, 300] {
            let (mut from, mut to) = UnixStream::pair().unwrap();
            let pipes = pipes(count);
            let borrowed: Vec<_> = pipes.iter().map(AsFd::as_fd).collect();
            let text = b"text".repeat(1000);
            let (sent, received) =
                tokio::join!(send_descriptors(&mut from, &text, &borrowed), receive_descriptors(&mut to));
            sent.unwrap();
            let (message, descriptors) = received.unwrap();
            assert_eq!(message, text);
            assert_eq!(descriptors.len(), pipes.len());
            for (number, descriptor) in (0_u32..).zip(descriptors) {
                let flags = rustix::io::fcntl_getfd(&descriptor).unwrap();
                assert!(flags.contains(rustix::io::FdFlags::CLOEXEC), "{}", descriptor.as_raw_fd());
                let mut bytes = [0; 4];
                io::PipeReader::from(descriptor).read_exact(&mut bytes).unwrap();
                assert_eq!(u32::from_be_bytes(bytes), number);
            }
        }
    }

    #[tokio::test]
    async fn malformed_messages_are_errors_and_allocate_no_memory() {
        let table: &[&[u8]] = &[
            &[],
            &[0, 0, 0, 1, 0, 0, 0, 0],
            &[0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0],
            &[0, 0, 0, 0, 0, 0, 0xff, 0xff],
            &[0, 0, 0, 0, 0, 0, 0, 1],
            // A byte without its descriptor.
            &[0, 0, 0, 0, 0, 0, 0, 1, 0],
        ];
        for bytes in table {
            let (mut from, mut to) = UnixStream::pair().unwrap();
            from.write_all(bytes).await.unwrap();
            drop(from);
            let received = timeout(std::time::Duration::from_secs(10), receive_descriptors(&mut to)).await.unwrap();
            assert!(received.is_err(), "{bytes:?}");
        }
    }

    #[tokio::test]
    async fn a_message_above_the_limit_is_not_sent() {
        let (mut from, _to) = UnixStream::pair().unwrap();
        let error = send_descriptors(&mut from, &vec![0; 1024 * 1024 + 1], &[]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }
}
