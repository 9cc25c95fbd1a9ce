//! A stream with a read buffer that gives lines and counted bytes: all that three protocols need.

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use crate::error::{BenchError, Outcome};

const BUFFER_BYTES: usize = 16 << 10;

#[derive(Debug)]
pub struct Buffered<S> {
    stream: S,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Buffered<S> {
    pub fn new(stream: S) -> Self {
        Self {
            stream,
            buffer: vec![0; BUFFER_BYTES],
            start: 0,
            end: 0,
        }
    }

    pub async fn write(&mut self, bytes: &[u8]) -> Outcome<()> {
        Ok(self.stream.write_all(bytes).await?)
    }

    /// The next line, without its end.
    pub async fn line(&mut self) -> Outcome<&[u8]> {
        let mut searched = 0;
        let length = loop {
            let fresh = &self.buffer[self.start + searched..self.end];
            if let Some(at) = fresh.iter().position(|byte| *byte == b'\n') {
                break searched + at;
            }
            searched = self.end - self.start;
            self.fill().await?;
        };
        let line = &self.buffer[self.start..self.start + length];
        self.start += length + 1;
        Ok(line.strip_suffix(b"\r").unwrap_or(line))
    }

    pub async fn skip(&mut self, count: usize) -> Outcome<()> {
        let mut left = count;
        loop {
            let taken = left.min(self.end - self.start);
            self.start += taken;
            left -= taken;
            if left == 0 {
                return Ok(());
            }
            self.fill().await?;
        }
    }

    pub async fn take(&mut self, count: usize) -> Outcome<Vec<u8>> {
        let mut bytes = Vec::with_capacity(count);
        loop {
            let taken = (count - bytes.len()).min(self.end - self.start);
            bytes.extend_from_slice(&self.buffer[self.start..self.start + taken]);
            self.start += taken;
            if bytes.len() == count {
                return Ok(bytes);
            }
            self.fill().await?;
        }
    }

    async fn fill(&mut self) -> Outcome<()> {
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        if self.end == self.buffer.len() {
            self.buffer.resize(self.buffer.len() * 2, 0);
        }
        match self.stream.read(&mut self.buffer[self.end..]).await? {
            0 => Err(BenchError::new("the other side hung up")),
            count => {
                self.end += count;
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Buffered;

    #[tokio::test]
    async fn lines_and_counted_bytes_survive_any_split() {
        let (ours, theirs) = tokio::io::duplex(3);
        let writer = tokio::spawn(async move {
            Buffered::new(theirs)
                .write(b"HTTP/1.1 202\r\nx\n\nbody!rest")
                .await
        });
        let mut wire = Buffered::new(ours);
        assert_eq!(wire.line().await.unwrap(), b"HTTP/1.1 202");
        assert_eq!(wire.line().await.unwrap(), b"x");
        assert_eq!(wire.line().await.unwrap(), b"");
        assert_eq!(wire.take(5).await.unwrap(), b"body!");
        wire.skip(4).await.unwrap();
        assert!(wire.line().await.is_err());
        writer.await.unwrap().unwrap();
    }
}
