package bootstrap

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// client is what is used of a typed client of one resource, in one namespace if it
// has one.
type client[T any] interface {
	Get(ctx context.Context, name string, o metav1.GetOptions) (T, error)
	Create(ctx context.Context, object T, o metav1.CreateOptions) (T, error)
	Update(ctx context.Context, object T, o metav1.UpdateOptions) (T, error)
	Delete(ctx context.Context, name string, o metav1.DeleteOptions) error
}

// lister is what is used of an informer's lister.
type lister[T any] interface {
	Get(name string) (T, error)
}

// stored is one object as the informer knows it, or, after any write of it failed,
// as it is. It is used by one goroutine.
type stored[T any] struct {
	ctx    context.Context // of the task at hand
	known  lister[T]
	client client[T]
	live   bool
}

func (s *stored[T]) get(name string) (T, error) {
	if s.live {
		return s.client.Get(s.ctx, name, metav1.GetOptions{})
	}
	return s.known.Get(name)
}

func (s *stored[T]) create(object T) (T, error) {
	out, err := s.client.Create(s.ctx, object, metav1.CreateOptions{})
	s.live = s.live || err != nil
	return out, err
}

func (s *stored[T]) update(object T) (T, error) {
	out, err := s.client.Update(s.ctx, object, metav1.UpdateOptions{})
	s.live = s.live || err != nil
	return out, err
}

func (s *stored[T]) delete(name string, uid types.UID) error {
	err := s.client.Delete(s.ctx, name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	s.live = true // the informer still has what was deleted
	return err
}

// present creates an object that is missing and leaves one that is there alone.
func present[T metav1.Object](known lister[T], client client[T], kind string, object T) task {
	return task{kind + " " + object.GetName(), func(ctx context.Context) error {
		if _, err := known.Get(object.GetName()); err == nil {
			return nil
		}
		_, err := client.Create(ctx, object, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		return err
	}}
}
