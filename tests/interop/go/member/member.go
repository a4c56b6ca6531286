// Member runs members of consumer groups with franz-go, one command per line of its input.
//
// Argument: the bootstrap servers.  A command begins with the name of a member, and has tabs between its words; the answer is
// one line of words with tabs between them: "ok" and what was asked for, or "error" and the reason.  See tests/interop/group_members.py.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	callMax = 60 * time.Second
	pollMax = 100 * time.Millisecond
)

type member struct {
	client *kgo.Client
	group  string
	topic  string

	// franz-go calls back in its own goroutines.
	lock     sync.Mutex
	assigned map[int32]bool
}

func main() {
	members := map[string]*member{}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		words := strings.Split(lines.Text(), "\t")
		var answer []string
		var err error
		if words[1] == "open" {
			members[words[0]], err = open(os.Args[1], words[2:])
		} else {
			answer, err = members[words[0]].run(words[1], words[2:])
		}
		if err != nil {
			answer = []string{"error", strings.ReplaceAll(err.Error(), "\n", " ")}
		} else {
			answer = append([]string{"ok"}, answer...)
		}
		fmt.Println(strings.Join(answer, "\t"))
	}
}

func open(bootstrap string, words []string) (*member, error) {
	created := &member{topic: words[0], group: words[1], assigned: map[int32]bool{}}
	options := []kgo.Opt{
		kgo.SeedBrokers(bootstrap),
		kgo.ConsumerGroup(created.group),
		kgo.ConsumeTopics(created.topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
		kgo.OnPartitionsAssigned(created.change(true)),
		kgo.OnPartitionsRevoked(created.change(false)),
		kgo.OnPartitionsLost(created.change(false)),
	}
	if words[2] == "consumer" {
		options = append(options, kgo.ServerSideBalancer())
	}
	if words[3] != "" {
		options = append(options, kgo.InstanceID(words[3]))
	}
	client, err := kgo.NewClient(options...)
	created.client = client
	return created, err
}

func (m *member) change(isAssigned bool) func(context.Context, *kgo.Client, map[string][]int32) {
	return func(_ context.Context, _ *kgo.Client, changed map[string][]int32) {
		m.lock.Lock()
		defer m.lock.Unlock()
		for _, partition := range changed[m.topic] {
			if isAssigned {
				m.assigned[partition] = true
			} else {
				delete(m.assigned, partition)
			}
		}
	}
}

func (m *member) run(command string, arguments []string) ([]string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), callMax)
	defer cancel()
	switch command {
	case "poll":
		return m.poll(ctx)
	case "partitions":
		return m.partitions(), nil
	case "commit":
		return nil, m.commit(ctx, arguments[0])
	case "committed":
		return m.committed(ctx)
	case "close":
		m.client.Close()
		return nil, nil
	}
	return nil, fmt.Errorf("no command %q", command)
}

func (m *member) poll(ctx context.Context) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, pollMax)
	defer cancel()
	fetches := m.client.PollFetches(ctx)
	if err := fetches.Err(); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return nil, err
	}
	var found []string
	fetches.EachRecord(func(record *kgo.Record) {
		found = append(found, fmt.Sprintf("%d:%d:%s", record.Partition, record.Offset, record.Value))
	})
	return found, nil
}

func (m *member) partitions() []string {
	m.lock.Lock()
	defer m.lock.Unlock()
	var found []string
	for partition := range m.assigned {
		found = append(found, fmt.Sprint(partition))
	}
	sort.Strings(found)
	return found
}

// commit commits the polled records; franz-go takes metadata only through a hook on the request.
func (m *member) commit(ctx context.Context, metadata string) error {
	annotate := func(request *kmsg.OffsetCommitRequest) error {
		for i := range request.Topics {
			for j := range request.Topics[i].Partitions {
				request.Topics[i].Partitions[j].Metadata = &metadata
			}
		}
		return nil
	}
	return m.client.CommitUncommittedOffsets(kgo.PreCommitFnContext(ctx, annotate))
}

// committed asks the coordinator for all committed offsets of the group.
func (m *member) committed(ctx context.Context) ([]string, error) {
	request := kmsg.NewPtrOffsetFetchRequest()
	group := kmsg.NewOffsetFetchRequestGroup()
	group.Group = m.group
	request.Groups = append(request.Groups, group)
	response, err := request.RequestWith(ctx, m.client)
	if err != nil {
		return nil, err
	}
	var found []string
	for _, group := range response.Groups {
		if err := kerr.ErrorForCode(group.ErrorCode); err != nil {
			return nil, err
		}
		for _, topic := range group.Topics {
			for _, partition := range topic.Partitions {
				if err := kerr.ErrorForCode(partition.ErrorCode); err != nil {
					return nil, err
				}
				metadata := ""
				if partition.Metadata != nil {
					metadata = *partition.Metadata
				}
				found = append(found, fmt.Sprintf("%d:%d:%s", partition.Partition, partition.Offset, metadata))
			}
		}
	}
	sort.Strings(found)
	return found, nil
}
