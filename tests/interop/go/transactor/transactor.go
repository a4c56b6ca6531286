// Transactor runs transactional producers of franz-go, one command per line of its input.
//
// Argument: the bootstrap servers.  A command begins with the name of a producer, and has tabs between
// its words; the answer is one line, "ok" or "error" with the reason.  See tests/interop/transactors.py.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const callMax = 60 * time.Second

type transactor struct {
	bootstrap string
	producers map[string]*kgo.Client
	failed    map[string]error
}

func main() {
	all := transactor{os.Args[1], map[string]*kgo.Client{}, map[string]error{}}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		words := strings.Split(lines.Text(), "\t")
		if err := all.run(words[0], words[1], words[2:]); err != nil {
			fmt.Println("error", reason(err))
		} else {
			fmt.Println("ok")
		}
	}
	for _, producer := range all.producers {
		producer.Close()
	}
}

func reason(err error) string {
	var known *kerr.Error
	if errors.As(err, &known) {
		return known.Message
	}
	return strings.ReplaceAll(err.Error(), "\n", " ")
}

func (all transactor) run(name, command string, arguments []string) error {
	ctx, cancel := context.WithTimeout(context.Background(), callMax)
	defer cancel()
	if command == "init" {
		return all.open(ctx, name, arguments[0], arguments[1])
	}
	if command == "copy" {
		return all.copy(ctx, name, arguments)
	}
	producer := all.producers[name]
	switch command {
	case "begin":
		return producer.BeginTransaction()
	case "send":
		partition, _ := strconv.Atoi(arguments[1])
		record := &kgo.Record{Topic: arguments[0], Partition: int32(partition), Value: []byte(arguments[2])}
		// Not with ctx: the record is sent after this call.
		producer.Produce(context.Background(), record, func(_ *kgo.Record, err error) {
			if err != nil {
				all.failed[name] = err
			}
		})
		return nil
	case "flush":
		return errors.Join(producer.Flush(ctx), all.failed[name])
	case "commit":
		return errors.Join(producer.Flush(ctx), producer.EndTransaction(ctx, kgo.TryCommit))
	case "abort":
		return errors.Join(producer.AbortBufferedRecords(ctx), producer.EndTransaction(ctx, kgo.TryAbort))
	case "close":
		producer.Close()
		delete(all.producers, name)
		return nil
	}
	return fmt.Errorf("no command %q", command)
}

func (all transactor) open(ctx context.Context, name, id, timeoutMs string) error {
	timeout, err := strconv.Atoi(timeoutMs)
	if err != nil {
		return err
	}
	producer, err := kgo.NewClient(
		kgo.SeedBrokers(all.bootstrap),
		kgo.TransactionalID(id),
		kgo.TransactionTimeout(time.Duration(timeout)*time.Millisecond),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
	)
	if err != nil {
		return err
	}
	all.producers[name] = producer
	_, _, err = producer.ProducerID(ctx)
	return err
}

// copy reads a topic in a consumer group and writes its records to another one, ten in a transaction.
func (all transactor) copy(ctx context.Context, id string, arguments []string) error {
	protocol, group, from, to := arguments[0], arguments[1], arguments[2], arguments[3]
	count, err := strconv.Atoi(arguments[4])
	if err != nil {
		return err
	}
	balancer := kgo.Balancers(kgo.CooperativeStickyBalancer())
	if protocol == "consumer" {
		balancer = kgo.ServerSideBalancer()
	}
	session, err := kgo.NewGroupTransactSession(
		balancer,
		kgo.SeedBrokers(all.bootstrap),
		kgo.TransactionalID(id),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(from),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.RequireStableFetchOffsets(),
		kgo.DefaultProduceTopic(to),
	)
	if err != nil {
		return err
	}
	defer session.Close()
	for copied := 0; copied < count; {
		fetches := session.PollRecords(ctx, min(10, count-copied))
		if err := fetches.Err(); err != nil {
			return err
		}
		if err := session.Begin(); err != nil {
			return err
		}
		written := 0
		fetches.EachRecord(func(record *kgo.Record) {
			session.Produce(ctx, &kgo.Record{Value: record.Value}, func(*kgo.Record, error) {})
			written++
		})
		committed, err := session.End(ctx, kgo.TryCommit)
		if err != nil {
			return err
		}
		if committed {
			copied += written
		}
	}
	return nil
}
