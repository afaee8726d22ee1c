package kafka.server

import java.util.concurrent.locks.ReentrantLock

/**
 * What is read from a broker, shared by the threads that wait for each other: sixty of them need no sixty readings.
 *
 * The lock is fair. With another one a thread that asks in a loop comes before those that wait, and they wait for ever.
 */
class SharedReading[T](nothing: T)(read: T => T) {
  private val lock = new ReentrantLock(true)
  private var last = nothing
  private var lastAt: Option[Long] = None

  /** Nothing older than a time of `System.nanoTime`. `read` gets what was read before. */
  def notBefore(oldest: Long): T = {
    lock.lock()
    try {
      if (lastAt.forall(_ - oldest < 0)) {
        val begin = System.nanoTime
        last = read(last)
        lastAt = Some(begin)
      }
      last
    } finally lock.unlock()
  }
}
